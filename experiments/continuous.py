"""TD3 on Pendulum, Hopper and Humanoid; and two ways to do the same: online or target network, shaping or rescaling."""

import dataclasses
import math
from collections.abc import Sequence

from bsrs.config.base import to_dict
from bsrs.config.training import TrainingConfig
from bsrs.stats.comparison import within
from bsrs.stats.records import Series
from bsrs.stats.references import MARGIN
from bsrs.stats.summary import SEED
from experiments.claims import (
    Claim,
    Scope,
    ahead,
    area,
    constant_etas,
    end_of,
    failures_text,
    final,
    judged,
    too_small,
    tuned,
)
from experiments.pooling import better, gains, span_of
from experiments.variant_configs import DQNVariantConfig

LARGE_ETAS = (5.0, 10.0)


def judge_pendulum(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge: better for some eta above 0, robust at large ones, worse below 0. Each claim needs only its own runs."""
    etas = {float(each.eta): each for each in constant_etas(series)}
    comparisons = {f"Robust: eta = {eta:g} is still better than eta = 0": (eta, 0.0) for eta in LARGE_ETAS}
    lowest = min(etas, default=0.0)
    comparisons["A negative eta is worse than eta = 0"] = 0.0, lowest if lowest < 0 else math.nan
    scope = dataclasses.replace(scope, questions=1 + len(comparisons))
    above = [each for eta, each in etas.items() if eta >= 0]
    text, best, small = "BSRS improves TD3 on Pendulum over eta = 0", tuned(above, area), too_small(above, scope)
    if best is None:
        first = judged(text, None, "", scope, small=small)
    else:
        differences, failures = best.held_out - best.baseline, failures_text(best.chosen, [best.plain])
        first = judged(
            text, best.best.gain, best.words, scope, small=small, differences=differences, end=end_of(best),
            failures=failures,
        )  # fmt: skip
    return [first, *(ahead(what, etas.get(one), etas.get(other), scope) for what, (one, other) in comparisons.items())]


def judge_potentials(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge our own question: does it matter that the authors' code had another potential than the text?"""
    text = "(Ours) The potential at the policy's action (the text) beats that at the replayed action (the code)"
    return better(text, series, "potential", ("policy", "replay"), scope)


def judge_mujoco(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge: Hopper slightly better with a tuned eta; Humanoid not significantly."""

    def about(env: str, text: str, *, improves: bool) -> Claim:
        own = [each for each in series if each.env.startswith(env)]
        best, small = tuned(own, final), too_small(own, scope)
        if best is None:
            return judged(text, None, "", scope, small=small)
        effect = best.best.gain
        if not improves:
            margin = MARGIN * span_of(best.plain, own)
            effect = within(best.held_out, best.baseline, high=margin, seed=SEED)
        failures = failures_text(best.chosen, [best.plain])
        return judged(text, effect, f"{best.words} in the final score", scope, small=small, failures=failures)

    return [
        about("Hopper", "Hopper: slightly better with a tuned eta, perhaps within the noise", improves=True),
        about("Humanoid", "Humanoid: no statistically significant improvement", improves=False),
    ]


# --------------------------------------------------------------------------------------------------------------
# Two ways to do the same, at the same eta.


def with_one_baseline(configs: Sequence[TrainingConfig]) -> list[TrainingConfig]:
    """Leave out the baselines of the other potentials: without shaping they are the same runs."""
    return [config for config in configs if getattr(config, "potential_network", "online") == "online" or config.eta]


def with_rescaled_controls(configs: Sequence[TrainingConfig]) -> list[TrainingConfig]:
    """Add the control to each shaped DQN run: no shaping, learning rate * (1 + eta), reward / (1 + eta)."""
    return [*configs, *(DQNVariantConfig(**to_dict(each), control="rescaled") for each in configs if each.eta)]


def judge_target_ablation(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge whether the online network is what makes the potential useful: it is better, and without it there is no
    gain. Runs with the target network at s' only are judged where there are any: the paper has none."""
    online, target, split = (
        [each for each in series if each.config.potential_network == network]
        for network in ("online", "target", "split")
    )
    zero = [each for each in series if each.eta == 0.0]
    scope = dataclasses.replace(scope, questions=4 if split else 3)
    together = "The potential from the online network beats that from the target network"
    claims = better(together, series, "potential_network", ("online", "target"), scope)
    text = "With the online network there is a positive difference from eta = 0"
    claims += gains((text, f"{text}, on tasks like these"), [*zero, *online], scope)
    text = "With the target network there is no positive difference from eta = 0 (DQN)"
    claims += gains((text, ""), [*zero, *target], scope, denies=True)
    if split:
        text = "(Ours) The online network at both ends beats the online one at s with the target network at s'"
        claims += better(text, series, "potential_network", ("online", "split"), scope)
    return claims


def judge_rescaling(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge our own question: is shaping more than rescaling?"""
    text = "(Ours) Shaping beats the mere rescaling that the TD(0) proposition suggests"
    return better(text, series, "control", ("none", "rescaled"), scope)
