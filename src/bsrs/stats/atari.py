"""Games by their envs' ids, and human-normalised Atari scores: 0 is random play, 1 a human tester (57 games)."""

import csv
import re
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from bsrs.errors import unknown


def game_name(env: str) -> str | None:
    """The game of an Atari env's id (PongNoFrameskip-v4, ALE/Pong-v5), or None for another env's id."""
    match = re.fullmatch(r"(?:ALE/)?([A-Za-z]+?)(?:NoFrameskip|Deterministic)?-v\d+", env)
    name = match.group(1) if match else env
    return name if name in reference_scores() or "NoFrameskip" in env or env.startswith("ALE/") else None


def minatar_game(env: str) -> str | None:
    """The game of a MinAtar env's id (MinAtar/Breakout-v1), or None for another env's id."""
    match = re.fullmatch(r"MinAtar/(\w+)-v\d+", env)
    return match and match.group(1)


def human_normalised(scores: npt.ArrayLike, game: str) -> npt.NDArray[np.float64]:
    """(score - random) / (human - random)."""
    if game not in reference_scores():
        raise unknown("game with a human score", game, reference_scores())
    random, human = reference_scores()[game]
    normalised: npt.NDArray[np.float64] = (np.asarray(scores, dtype=np.float64) - random) / (human - random)
    return normalised


@cache
def reference_scores() -> dict[str, tuple[float, float]]:
    """game -> (random, human)."""
    text = files("bsrs").joinpath("data", "atari_scores.csv").read_text()
    rows = csv.DictReader(text.splitlines())
    return {row["game"]: (float(row["random"]), float(row["human"])) for row in rows}
