"""eta = auto against every constant, on held-out envs. docs/choosing-eta.md has the criterion."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bsrs.config.training import TrainingConfig
from bsrs.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILION, eta_label, new_figure
from bsrs.stats import Comparison, Interval, bootstrap, mean
from bsrs.stats.aggregates import Array
from bsrs.stats.comparison import within
from bsrs.stats.records import Series
from bsrs.stats.references import MARGIN
from bsrs.stats.summary import of_seeds, on_shared_seeds
from experiments.claims import (
    SEED,
    Claim,
    Scope,
    Value,
    area,
    corrected,
    failures_text,
    final,
    judged,
    means,
    stacked,
    too_small,
)
from experiments.pooling import UNIT, span_of

MEASURES: dict[str, Value] = {"mean over training": area, "end": final}
Settings = Mapping[str, Mapping[str, Series]]  # setting -> env -> its runs


def is_wanted(config: Any) -> bool:
    """Not what is the same with either potential: the baseline, and an eta that mixes the networks itself."""
    return getattr(config, "potential_network", "online") == "online" or config.eta not in (0.0, "auto")


def with_one_baseline(configs: Sequence[TrainingConfig]) -> list[TrainingConfig]:
    """Leave out the runs that are the same with either potential."""
    return [config for config in configs if is_wanted(config)]


def by_setting(series: Sequence[Series]) -> dict[str, dict[str, Series]]:
    """Constants in the order of eta, online before split, then the others."""
    found: dict[str, dict[str, Series]] = {}
    for each in sorted(series, key=_order):
        if is_wanted(each.config) and each.env in judged_envs(series):
            found.setdefault(name_of(each), {})[each.env] = each
    return found


def judged_envs(series: Sequence[Series]) -> list[str]:
    """Those with a baseline and auto; the runs by which the rule was chosen name it in full, `auto:paired`."""
    plain, auto = ({each.env for each in series if each.eta == eta} for eta in (0.0, "auto"))
    return sorted(plain & auto)


def _order(series: Series) -> tuple[bool, bool, Any]:
    return isinstance(series.eta, str), _network(series) == "split", series.eta


def name_of(series: Series) -> str:
    """As it stands in the figure."""
    name = eta_label(series.eta)
    return f"{name} split" if _network(series) == "split" else "baseline" if series.eta == 0.0 else name


def _network(series: Series) -> str:
    return str(getattr(series.config, "potential_network", "online"))


def normalised(settings: Settings, value: Value) -> dict[str, Array]:
    """Each run's score above the baseline's mean, in units of its env's reference range.

    (seeds, envs), for the settings that were run on all envs, on the seeds that all share.
    """
    envs = sorted(settings["baseline"])
    complete = {name: runs for name, runs in settings.items() if sorted(runs) == envs}
    seeds = sorted(set.intersection(*(set(each.seeds) for runs in complete.values() for each in runs.values())))
    columns: dict[str, list[Array]] = {name: [] for name in complete}
    for env in envs:
        scores = {name: of_seeds(runs[env], seeds, value) for name, runs in complete.items()}
        unit = span_of(settings["baseline"][env], list(settings["baseline"].values()))
        for name, each in scores.items():
            columns[name].append((each - scores["baseline"].mean()) / unit)
    return {name: np.stack(each, axis=1) for name, each in columns.items()}


# --------------------------------------------------------------------------------------------------------------
# The criterion.


def judge_auto(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Nowhere worse than the baseline, in the aggregate as good as the best single constant: within the margin."""
    settings = by_setting(series)
    if not {"baseline", "auto"} <= settings.keys():
        return []
    envs = judged_envs(series)
    pairs = {env: (settings["auto"][env], settings["baseline"][env]) for env in envs}
    lengths = {env: auto.config.steps for env, (auto, _) in pairs.items()}  # no length is the right one
    small = too_small([each for pair in pairs.values() for each in pair], dataclasses.replace(scope, steps=lengths))
    about = partial(judged, too_small=small, command=scope.command)
    claims = []
    for measure, value in MEASURES.items():
        for env, (auto, plain) in pairs.items():
            margin = MARGIN * span_of(plain, series)
            effect = within(*on_shared_seeds(value, auto, plain), low=-margin, seed=SEED)
            shown = f"{effect.mean:+.3g} (margin {margin:.3g})"
            failures = failures_text([auto], [plain])
            claims.append(
                about(
                    f"(Ours) {env}: eta = auto is not worse than the baseline, {measure}",
                    effect,
                    shown,
                    failures=failures,
                )
            )
        best, effect = against_best(settings, value)
        text = f"(Ours) On average over envs eta = auto is as good as the best single constant, {measure}"
        claims.append(about(text, effect, f"{effect.mean:+.2f} {UNIT}, against {best} (margin {MARGIN})"))
    return corrected(claims)


def against_best(settings: Settings, value: Value) -> tuple[str, Comparison]:
    """The constant that is best over all envs, and auto minus it, normalised."""
    scores = {name: score.mean(axis=1) for name, score in normalised(settings, value).items()}  # (seeds,)
    best = max((name for name in scores if "auto" not in name), key=lambda name: float(scores[name].mean()))
    return best, within(scores["auto"], scores[best], low=-MARGIN, seed=SEED)


def auto_table(series: Sequence[Series]) -> list[str]:
    """Every setting on every env, those that chose the rule among them."""
    lines = [
        "| env | eta | seeds | steps | mean score over training | score at the end | diverged |",
        "|---|---|---|---|---|---|---|",
    ]
    for env in sorted({each.env for each in series}):
        here = [each for each in series if each.env == env and is_wanted(each.config)]
        for each in sorted(here, key=_order):
            scores = " | ".join(str(bootstrap(mean, value(each)[:, None], seed=SEED)) for value in (area, final))
            cells = f"{len(each.seeds)} | {each.config.steps:,} | {scores} | {each.diverged or ''}"
            lines.append(f"| {env} | {name_of(each)} | {cells} |")
    return lines


# --------------------------------------------------------------------------------------------------------------
# The figure.


def draw_auto(series: Sequence[Series]) -> dict[str, Figure]:
    """Above: every setting on each env, and over all of them. Below: what auto did over time."""
    settings = by_setting(series)
    envs = judged_envs(series)
    figure, axes = new_figure(3.1 * (len(envs) + 1), 5.2, 2, len(envs) + 1, squeeze=False, height_ratios=(1.6, 1))
    for column, env in enumerate(envs):
        here = {name: runs[env] for name, runs in settings.items() if env in runs}
        for (measure, value), marker in zip(MEASURES.items(), "os", strict=True):
            _dots(axes[0, column], list(here), means(list(here.values()), value), measure, marker)
        axes[0, column].set_title(env, loc="left")
        axes[0, column].set_xlabel("score")
        _over_time(axes[1, column], [runs[env] for name, runs in settings.items() if "auto" in name and env in runs])
    if "baseline" in settings:
        for (measure, value), marker in zip(MEASURES.items(), "os", strict=True):
            scores = normalised(settings, value)
            each = [bootstrap(mean, score, seed=SEED) for score in scores.values()]
            _dots(axes[0, -1], list(scores), stacked(each), measure, marker)
    axes[0, -1].set_title("over all envs", loc="left")
    axes[0, -1].set_xlabel("gain over the baseline, in units\nof the reference range")
    axes[0, -1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    axes[1, -1].set_visible(False)
    return {"auto-eta": figure}


def _dots(ax: Axes, names: Sequence[str], score: Interval, measure: str, marker: str) -> None:
    """A row for each setting; filled for the mean over training, open for the end."""
    filled = marker == "o"
    at = np.arange(len(names))[::-1] + (0.13 if filled else -0.13)
    estimate = np.asarray(score.estimate)
    for i, name in enumerate(names):
        colour = BLACK if name == "baseline" else ORANGE if "auto" in name else GREEN if "split" in name else BLUE
        if np.isfinite(score.low[i]) and np.isfinite(score.high[i]):
            ax.plot([score.low[i], score.high[i]], [at[i]] * 2, color=colour, linewidth=1.2)
        face = colour if filled else "white"
        ax.plot(estimate[i], at[i], marker, color=colour, markerfacecolor=face, markersize=4.5)
    ax.plot([], [], marker, color=GREY, markerfacecolor=GREY if filled else "white", markersize=4.5, label=measure)
    ax.axvline(
        estimate[names.index("baseline")] if "baseline" in names else 0, color=GREY, linewidth=0.7, linestyle=":"
    )
    ax.set_yticks(np.arange(len(names))[::-1], names)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.grid(axis="y", visible=False)


def _over_time(ax: Axes, series: Sequence[Series]) -> None:
    """The share of the online network in V(s') of each run, or eta where that is what moves, and their mean."""
    for each, colour in zip(series, (ORANGE, VERMILION, BLUE, GREEN), strict=False):
        name = "share" if any("share" in line for line in each.runs[0].metrics) else "eta"
        traces = [run.trace(name) for run in each.runs]
        length = min(len(steps) for steps, _ in traces)
        for steps, values in traces:
            ax.plot(steps, values, color=colour, alpha=0.2, linewidth=0.7)
        average = np.mean([values[:length] for _, values in traces], axis=0)
        ax.plot(traces[0][0][:length], average, color=colour, label=name_of(each))
        ax.set_ylabel("share of the online\nnetwork in V(s')" if name == "share" else "η")
    ax.set_xlabel("env steps")
    ax.set_ylim(bottom=0)
