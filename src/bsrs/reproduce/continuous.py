"""TD3: Pendulum with its inset over eta, Hopper and Humanoid."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from bsrs.figures.curves import learning_curves, sensitivity_inset
from bsrs.figures.style import eta_colours, eta_label, new_figure
from bsrs.reproduce.claims import Claim, denied, judged
from bsrs.reproduce.evidence import Scope, area, at, constant_etas, curves, final, gain, means, too_small, tuned
from bsrs.stats import Comparison
from bsrs.stats.records import Series

LARGE_ETAS = (5.0, 10.0)


def draw_pendulum(series: Sequence[Series]) -> dict[str, Figure]:
    """Learning curves for eta >= 0, the paper's band (the standard error) inside the interval; inset: mean score over
    training for all etas."""
    etas = constant_etas(series)
    figure, ax = new_figure(4.6, 3.3)
    drawn = curves([each for each in etas if float(each.eta) >= 0], standard_error=True)
    learning_curves(ax, drawn, score="score")
    if drawn:  # room for the curves: intervals of few seeds would take it all
        heights = np.concatenate([curve.score.estimate for curve in drawn])
        room = 0.3 * float(np.ptp(heights)) + 1e-9
        ax.set_ylim(heights.min() - room, heights.max() + room)
    colours = eta_colours([each.eta for each in etas])
    zero = at(etas, 0.0)
    sensitivity_inset(
        ax,
        (0.5, 0.2, 0.47, 0.42),
        [eta_label(each.eta) for each in etas],
        [colours[each.eta] for each in etas],
        means(etas, area),
        name="mean over training",
        baseline=None if zero is None else etas.index(zero),
    )
    return {"pendulum": figure}


def judge_pendulum(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Better for some eta above 0, robust at large ones, worse below 0. Each claim needs only the runs it is about."""
    etas = constant_etas(series)
    zero = at(etas, 0.0)

    def about(text: str, effect: Comparison | None, shown: str, runs: Sequence[Series]) -> Claim:
        return judged(text, effect, shown, too_small=too_small(runs, scope), command=scope.command)

    def better(text: str, first: Series | None, second: Series | None) -> Claim:
        if first is None or second is None:
            return about(text, None, "", [])
        effect = gain(first, second, area)
        return about(text, effect, _words(effect), [first, second])

    not_negative = [each for each in etas if float(each.eta) >= 0]
    best = tuned(not_negative, area)
    improves = "BSRS improves TD3 on Pendulum over eta = 0"
    return [
        about(improves, best.best.gain if best else None, best.words if best else "", not_negative),
        *(better(f"Robust: eta = {eta:g} is still better than eta = 0", at(etas, eta), zero) for eta in LARGE_ETAS),
        better("A negative eta is worse than eta = 0", zero, etas[0] if etas and float(etas[0].eta) < 0 else None),
    ]


def draw_mujoco(series: Sequence[Series]) -> dict[str, Figure]:
    """A panel for each env."""
    envs = sorted({each.env for each in series})
    figure, axes = new_figure(3.9 * len(envs), 2.9, 1, len(envs), squeeze=False)
    for ax, env in zip(axes[0], envs, strict=True):
        learning_curves(ax, curves(constant_etas([each for each in series if each.env == env])), score="score")
        ax.set_title(env, loc="left")
    return {"mujoco": figure}


def judge_mujoco(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Hopper slightly better with a tuned eta; Humanoid not significantly."""

    def about(env: str, text: str, *, improves: bool) -> Claim:
        own = [each for each in series if each.env.startswith(env)]
        best = tuned(own, final)
        effect = best.best.gain if best else None
        if effect is not None and not improves:
            effect = denied(effect)
        words = best.words if best else ""
        return judged(text, effect, words, too_small=too_small(own, scope), command=scope.command)

    return [
        about("Hopper", "Hopper: slightly better with a tuned eta, perhaps within the noise", improves=True),
        about("Humanoid", "Humanoid: no statistically significant improvement", improves=False),
    ]


def _words(effect: Comparison | None) -> str:
    return f"{effect.mean:+.4g} in the mean score over training" if effect else ""
