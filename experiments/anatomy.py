"""Which part of BSRS helps, and against what: its parts, controls and related methods, on the same seeds.

eta is fixed beforehand for each env, by runs on other seeds. docs/why-it-works.md has the algebra and what came out.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bsrs.config.algorithms import preset
from bsrs.config.settings import RunSettings
from bsrs.config.training import TrainingConfig
from bsrs.figures.style import BLUE, GREEN, GREY, VERMILION, new_figure
from bsrs.stats import bootstrap, mean, paired_difference
from bsrs.stats.aggregates import Array
from bsrs.stats.records import Series
from bsrs.stats.summary import SEED, gain, on_shared_seeds
from experiments.bars import Difference, differences
from experiments.claims import Claim, Scope, ahead, area, corrected, failures_text, judged, too_small
from experiments.pooling import against_zero
from experiments.tables import markdown
from experiments.variants import as_options

Fields = dict[str, Any]
Found = dict[str, dict[str, Series]]  # env -> cell -> its runs

PARTS = ("c", "a", "b", "ca", "cb", "ab")
CELLS = {"baseline": "", "BSRS": "cab", **{parts: parts for parts in PARTS}}
"""Cell -> which parts it has, in the experiment with all combinations of parts."""
CONTROLS = ("scaled", "learning-rate", "faster-target")
VARIED = {"parts", "control", "comparator"}
"""Settings that only the variants have."""
ETAS = {"CartPole-v1": 1.0, "Acrobot-v1": 2.0, "Pendulum-v1": 2.0}
FACTORS = (0.5, 2.0)
"""Further etas for BSRS to choose from, as multiples of the env's. The baseline chooses from the controls."""
FIRST_SEED = 200
SHORT = {"steps": 250, "learning_starts": 100, "log_every": 100, "eval_every": 125, "eval_episodes": 2}
LENGTHS: dict[str, Fields] = {
    "dqn": {"steps": 20_000, "exploration_fraction": 0.25, "eval_every": 2_500, "eval_episodes": 5},
    "td3": {"steps": 6_000, "hidden": (64, 64), "batch_size": 64, "eval_episodes": 5},
}


def cells(algorithm: str, eta: float) -> dict[str, Fields]:
    """List what is trained on one env: name -> its settings.

    The control `exact` is the cell `cb`, the split potential the cell `ca`.
    """
    is_dqn = algorithm == "dqn"
    found: dict[str, Fields] = {"baseline": {}, "BSRS": {"eta": eta}}
    found |= {parts: {"eta": eta, "parts": parts} for parts in PARTS}
    found["target"] = {"eta": eta, "potential_network": "target"}
    found |= {control: {"eta": eta, "control": control} for control in CONTROLS}
    found |= {f"BSRS, eta = {eta * factor:g}": {"eta": eta * factor} for factor in FACTORS}
    comparators = ["advantage", "persistent", "minto", "centering", *(["munchausen", "popart"] if is_dqn else [])]
    found |= {name: {"comparator": name} for name in comparators}
    found["n_step"] = {"n_step": 3}
    if is_dqn:
        found |= {"double": {"double": True}, "dueling": {"network": "dueling"}}
    for name in [name for name in comparators if name in ("advantage", "persistent", "munchausen")]:
        found[f"{name}, matched"] = {"comparator": name, "comparator_alpha": eta / (1 + eta)}
    return found


def plan(scale: str) -> list[TrainingConfig]:
    """List every run at a scale. The largest is the laptop's."""
    envs, count = (["CartPole-v1"], 2) if scale == "smoke" else (list(ETAS), 10)
    bases = [base for env in envs for base in _bases(scale, env).values()]
    return [dataclasses.replace(base, seed=seed) for base in bases for seed in range(FIRST_SEED, FIRST_SEED + count)]


def _bases(scale: str, env: str) -> dict[str, TrainingConfig]:
    """Return the cells of an env as configs, at seed 0."""
    algorithm, name = ("td3", "pendulum") if env == "Pendulum-v1" else ("dqn", "classic")
    fields = SHORT if scale == "smoke" else LENGTHS[algorithm]
    return {
        cell: preset(f"{algorithm}-variant" if own.keys() & VARIED else algorithm, name, env=env, **{**fields, **own})
        for cell, own in cells(algorithm, ETAS[env]).items()
    }


def by_cell(series: Sequence[Series]) -> Found:
    """Find the series that are cells of this experiment, at whatever scale they were trained."""
    known = {
        _key(as_options(RunSettings.of(config))): cell
        for scale in ("smoke", "laptop")
        for env in ETAS
        for cell, config in _bases(scale, env).items()
    }
    found: Found = {}
    for each in series:
        cell = known.get(_key(as_options(each.config)))
        if cell is not None:
            found.setdefault(each.env, {})[cell] = each
    return found


def _key(settings: RunSettings) -> str:
    """Write down everything but the seed, whichever version wrote it."""
    fields = dict(settings.meaning)
    if fields.pop("dueling", False):
        fields["network"] = "dueling"
    return repr((settings.algorithm, sorted((name, value) for name, value in fields.items() if name != "seed")))


# --------------------------------------------------------------------------------------------------------------
# Effects.


def contrasts(own: Mapping[str, Series]) -> dict[str, Array]:
    """Compute main effects and interactions of the parts over training, by seed; empty if a cell is missing.

    The main effect of a part is the mean of the cells with it minus the mean of those without.
    """
    if not set(CELLS) <= set(own):
        return {}
    scores = dict(zip(CELLS.values(), on_shared_seeds(area, *(own[cell] for cell in CELLS)), strict=True))

    def contrast(parts: Sequence[str]) -> Array:
        signs = {cell: math.prod(1 if part in cell else -1 for part in parts) for cell in scores}
        return np.asarray(np.sum([sign * scores[cell] for cell, sign in signs.items()], axis=0) / 4)

    return {"".join(parts): contrast(parts) for size in (1, 2, 3) for parts in itertools.combinations("cab", size)}


# --------------------------------------------------------------------------------------------------------------
# Claims.

AGAINST = {
    "the target network's potential (the paper's ablation)": "target",
    "the split potential (parts c and a)": "ca",
    "the baseline": "baseline",
    "the scaled reward": "scaled",
    "the exact control (Q in the place of V)": "cb",
    "a faster target network": "faster-target",
    "a larger learning rate": "learning-rate",
}
SHOWN = "{first:.4g} against {second:.4g} over training"
PAPERS = {
    "advantage": "advantage learning",
    "persistent": "persistent advantage learning",
    "munchausen": "Munchausen",
    "minto": "MINTO",
    "centering": "reward centering",
    "popart": "PopArt",
    "n_step": "3-step returns",
    "double": "Double DQN",
    "dueling": "dueling heads",
}


def judge_anatomy(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge BSRS against each control and comparator, env by env; corrected within each env's questions of one kind."""
    found: list[Claim] = []
    scope = dataclasses.replace(scope, questions=len(AGAINST))
    for env, own in by_cell(series).items():
        known = cells(own_algorithm(own), ETAS[env])
        names = {**PAPERS, **{f"{cell}, matched": f"{name} at the same eta" for cell, name in PAPERS.items()}}
        for questions in (AGAINST, {names[cell]: cell for cell in known if cell in names}):
            found += _together(
                ahead(f"{env}: BSRS beats {what}", own.get("BSRS"), own.get(cell), scope, SHOWN)
                for what, cell in questions.items()
            )
        found += _together([*_parts_claims(env, own, scope), *_tuned_claim(env, own, scope)])
    return found


def _together(claims: Iterable[Claim]) -> list[Claim]:
    """Correct for all that was asked, also for what has not been run: verdicts do not change when it comes in."""
    claims = list(claims)
    asked = corrected([dataclasses.replace(claim, p=1.0) if claim.p is None else claim for claim in claims])
    return [claim if claim.p is None else found for claim, found in zip(claims, asked, strict=True)]


def _parts_claims(env: str, own: Mapping[str, Series], scope: Scope) -> list[Claim]:
    words = {"c": "the scaled reward", "a": "advantage learning", "b": "the mixed bootstrap"}
    found = []
    for part, values in ((part, values) for part, values in contrasts(own).items() if part in words):
        text = f"{env}: part {part}, {words[part]}, helps on average over the other parts"
        sides = ([own[cell] for cell, parts in CELLS.items() if (part in parts) == has] for has in (True, False))
        effect = against_zero(values) if len(values) else None
        found.append(
            judged(
                text, effect, f"{values.mean():+.4g} over training", scope,
                small=too_small(list(own.values()), scope), differences=values, failures=failures_text(*sides),
            )
        )  # fmt: skip
    return found


def _tuned_claim(env: str, own: Mapping[str, Series], scope: Scope) -> list[Claim]:
    """Judge tuned against tuned: as many tries for the baseline as for eta, each chosen on other seeds."""
    shaped = [cell for cell in own if cell.startswith("BSRS")]
    plain = [cell for cell in CONTROLS if cell in own]
    if "baseline" not in own or len(shaped) < 2 or len(shaped) != len(plain):
        return []
    used = ["baseline", *shaped, *plain]
    scores = dict(zip(used, on_shared_seeds(area, *(own[cell] for cell in used)), strict=True))
    ours, theirs = (held_out(np.stack([scores[cell] for cell in ["baseline", *tried]])) for tried in (shaped, plain))
    shown = f"{ours.mean():.4g} against {theirs.mean():.4g} over training, {len(plain)} tries each and eta = 0"
    failures = failures_text([own[cell] for cell in shaped], [own[cell] for cell in ("baseline", *plain)])
    small = too_small([own[cell] for cell in (*shaped, *plain)], scope)
    effect = paired_difference(ours, theirs, seed=SEED) if len(ours) else None
    text = f"{env}: tuned BSRS beats the tuned baseline"
    return [judged(text, effect, shown, scope, small=small, differences=ours - theirs, failures=failures)]


def held_out(scores: Array) -> Array:
    """Take each seed's score by the try that is best on the other seeds: (tries, seeds) -> (seeds,)."""
    others = [int(np.delete(scores, seed, axis=1).mean(axis=1).argmax()) for seed in range(scores.shape[1])]
    return np.asarray(scores[others, np.arange(scores.shape[1])])


# --------------------------------------------------------------------------------------------------------------
# Figures and the table.

_GROUPS = (
    (("BSRS", *PARTS), BLUE),
    (("target",), GREEN),
    (("scaled", "learning-rate", "faster-target"), VERMILION),
    (tuple(PAPERS), GREY),
)
_WORDS = {"c": "reward scale", "a": "advantage learning", "b": "mixed bootstrap"}
_NAMES = {
    **PAPERS,
    **{parts: f"{' + '.join(_WORDS[part] for part in parts)} ({parts})" for parts in PARTS},
    "BSRS": "BSRS: all three",
    "target": "BSRS, V from the target network",
    "scaled": "control: smaller reward",
    "learning-rate": "control: larger learning rate",
    "faster-target": "control: faster target network",
}


def draw_anatomy(series: Sequence[Series]) -> dict[str, Figure]:
    """Draw gains over the baseline, cell by cell; and the effects of the parts."""
    found = by_cell(series)
    shown = {cell: colour for group, colour in _GROUPS for cell in group if any(cell in own for own in found.values())}
    gains, effects = {}, {}
    for env, own in found.items():
        each = {cell: gain(own[cell], own["baseline"], area) for cell in shown if cell in own and "baseline" in own}
        rows = [(_NAMES.get(cell, cell), each.get(cell), colour) for cell, colour in shown.items()]
        gains[f"{env}, η = {ETAS[env]:g}"] = rows
        parts = {name: against_zero(values) for name, values in contrasts(own).items()}
        if parts:
            effects[env] = [
                (
                    f"{_WORDS[name]} ({name})" if name in _WORDS else " × ".join(name),
                    effect,
                    BLUE if len(name) == 1 else GREY,
                )
                for name, effect in parts.items()
            ]
    figures = {"anatomy": _panels(gains, 2.2, 2.6, "gain over the baseline,\nmean score over training")}
    if effects:
        figures["anatomy-parts"] = _panels(effects, 1.8, 2.4, "effect on the mean score\nover training")
    return figures


def _panels(rows: Mapping[str, Sequence[Difference]], left: float, each: float, what: str) -> Figure:
    """Draw panels side by side, `each` inches wide, with room for their common names on the left."""
    height = 1.0 + 0.21 * len(next(iter(rows.values()), ()))
    figure, axes = new_figure(left + each * len(rows), height, 1, len(rows), squeeze=False, sharey=True)
    for ax, (title, own) in zip(axes[0], rows.items(), strict=True):
        differences(ax, own)
        ax.set_title(title, loc="left")
        ax.set_xlabel(what)
    return figure


def anatomy_table(series: Sequence[Series]) -> list[str]:
    """Write every cell as a row of a Markdown table."""
    rows = []
    for env, own in by_cell(series).items():
        for cell in (name for name in cells(own_algorithm(own), ETAS[env]) if name in own):
            each, plain = own[cell], own.get("baseline")
            effect = None if plain is None or cell == "baseline" else gain(each, plain, area)
            over, p = bootstrap(mean, each.area[:, None], seed=SEED), f"{effect.p:.2g}" if effect else ""
            found = each.diverged or "", over, effect or "", p, f"{each.final.mean():.4g}"
            rows.append((env, PAPERS.get(cell, cell), len(each.seeds), *found))
    columns = "env | cell | seeds | diverged | mean score over training | gain over plain | p | score at the end"
    return markdown(columns, rows)


def own_algorithm(own: Mapping[str, Series]) -> str:
    """Name the algorithm of the series of one env."""
    return next(iter(own.values())).config.algorithm
