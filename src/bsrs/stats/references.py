"""The fixed scale of a task, 0 a random policy and 1 a reference score, and what counts as a failed run."""

import csv
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from bsrs.errors import unknown

Array = npt.NDArray[np.float64]
FAILED_BELOW = 0.1  # of the range from random to reference
MARGIN = 0.05  # of the same range: a difference that does not matter


@dataclass(frozen=True)
class Reference:
    """The fixed scale of a task: the score of a random policy and a reference score."""

    random: float
    score: float
    source: str

    @property
    def span(self) -> float:
        """Range from the random policy's score to the reference score."""
        return self.score - self.random

    def normalised(self, scores: npt.ArrayLike) -> Array:
        """Return (score - random) / (reference - random)."""
        return np.asarray((np.asarray(scores, dtype=np.float64) - self.random) / self.span)

    def failed(self, final: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return which final scores are no better than the random policy's plus 10% of the range."""
        return np.asarray(np.asarray(final) <= self.random + FAILED_BELOW * self.span)


def failure_bound(failed: int, runs: int, confidence: float = 0.95) -> float:
    """Bound the failure probability from above (Clopper and Pearson, one-sided): 0 of 10 is at most 26%."""
    from scipy.stats import beta

    return 1.0 if failed == runs else float(beta.ppf(confidence, failed + 1, runs - failed))


def reference_of(env: str) -> Reference | None:
    """Look up the reference of an env id, or None if there is none."""
    game = game_name(env)
    return references().get(env) or (atari_references().get(game) if game else None)


def game_name(env: str) -> str | None:
    """Return the game of an Atari env's id (PongNoFrameskip-v4, ALE/Pong-v5), or None for another env's id."""
    match = re.fullmatch(r"(?:ALE/)?([A-Za-z]+?)(?:NoFrameskip|Deterministic)?-v\d+", env)
    name = match.group(1) if match else env
    return name if name in atari_references() or "NoFrameskip" in env or env.startswith("ALE/") else None


def minatar_game(env: str) -> str | None:
    """Return the game of a MinAtar env's id (MinAtar/Breakout-v1), or None for another env's id."""
    match = re.fullmatch(r"MinAtar/(\w+)-v\d+", env)
    return match and match.group(1)


def human_normalised(scores: npt.ArrayLike, game: str) -> Array:
    """Scale Atari scores to 0 for random play and 1 for a human tester."""
    return human_reference(game).normalised(scores)


def human_reference(game: str) -> Reference:
    """Look up random play and a human tester on an Atari game."""
    if game not in atari_references():
        raise unknown("game with a human score", game, atari_references())
    return atari_references()[game]


@cache
def references() -> dict[str, Reference]:
    """Read the references: env id -> reference."""
    text = files("bsrs").joinpath("data", "references.toml").read_text()
    return {env: Reference(**entry) for env, entry in tomllib.loads(text).items()}


@cache
def atari_references() -> dict[str, Reference]:
    """Read random play and a human tester: game -> reference (57 games)."""
    rows = csv.DictReader(files("bsrs").joinpath("data", "atari_scores.csv").read_text().splitlines())
    return {row["game"]: Reference(float(row["random"]), float(row["human"]), "a human tester") for row in rows}
