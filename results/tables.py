"""The tables in README.md and the figures beside it, from the records in this folder: `python results/tables.py`.

Nothing is trained.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bsrs.figures.style import eta_colours, eta_label, project_style
from bsrs.reproduce.claims import SEED, Claim, area, corrected, gain, tuned
from bsrs.reproduce.continuous import draw_variants, judge_pendulum, judge_potentials
from bsrs.reproduce.experiments import EXPERIMENTS
from bsrs.reproduce.theory import judge_theory
from bsrs.stats import area_under_curve, bootstrap, final_score, mean, paired_difference
from bsrs.stats.aggregates import Array
from bsrs.stats.atari import minatar_game
from bsrs.stats.recommend import recommend
from bsrs.stats.records import RunRecord, Series, Task, read_runs, series_of
from bsrs.stats.summary import baseline_of, on_shared_seeds

HERE = Path(__file__).parent
README = HERE / "README.md"
# Where the runs of the experiments are, its figure in the first folder, and which of them belong; the other experiments
# need a cluster.
EXPERIMENT_RUNS: dict[str, tuple[tuple[str, ...], Callable[[Any], bool]]] = {
    "atari": (("atari",), lambda config: True),
    "minatar": (("minatar",), lambda config: True),
    "pendulum": (("pendulum",), lambda config: True),
    "rescaling": (("cartpole",), lambda config: config.potential_network == "online"),
    "target-ablation": (
        ("cartpole", "acrobot-full", "lunar-lander", "breakout"),
        lambda config: config.control == "none",
    ),
    "zoo": (("zoo",), lambda config: True),
}
# Folders some of whose runs lie in another, which ones, and the field in which the runs of both differ: without shaping
# an agent is the same whatever the potential, and the study of MinAtar has seeds of Breakout's ablation.
BORROWED: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "pendulum-replay": ("pendulum", "potential", lambda config: config.eta == 0.0),
    "breakout": (
        "minatar",
        "potential_network",
        lambda config: config.env == "MinAtar/Breakout-v0" and config.eta != "auto",
    ),
}
# Runs with settings that nobody tuned for the env, and the same algorithm as the zoo tuned it.
UNTUNED = {"cartpole": "zoo/cartpole", "acrobot-full": "zoo/acrobot", "lunar-lander": "zoo/lunarlander"}

# Young and Tian (2019), plain DQN's training returns at 500,000 frames, 30 runs with epsilon 0.1: read off the learning
# curves that their repository shows (github.com/kenjyoung/MinAtar, img/learning_curves.gif).
MINATAR_PUBLISHED = {"Asterix": 1.0, "Breakout": 8.2, "Freeway": 35.1, "SpaceInvaders": 27.5}
# rl-baselines3-zoo's benchmark.md: the mean return of one trained agent each.
ZOO_PUBLISHED = {
    "acrobot": -76.6,
    "cartpole": 500.0,
    "lunarlander": 154.4,
    "mountaincar": -100.8,
    "pendulum-sac": -157.0,
    "pendulum-td3": -151.9,
}
AS_RUN = replace(EXPERIMENTS["pendulum"], preset="paper-pendulum-as-run")

# Folders whose tables are in a README.md of their own.
OWN_PAGES = ("anatomy", "auto-eta")
# A score at which a task is learned, or nearly: where Gymnasium or, for LunarLander, the zoo sets it, else what a curve
# passes on its steepest part.
LEARNED = {
    "acrobot": -100,
    "acrobot-full": -100,
    "cartpole": 475,
    "pendulum": -200,
    "pendulum-replay": -200,
    "zoo/acrobot": -100,
    "zoo/cartpole": 475,
    "zoo/lunarlander": ZOO_PUBLISHED["lunarlander"],
    "zoo/mountaincar": -150,
    "zoo/pendulum-sac": -200,
    "zoo/pendulum-td3": -200,
}


def main() -> None:
    claims = claims_table([*judge_theory(), *experiment_claims()])
    fill(
        README,
        {
            "claims": claims,
            "sentences": sentences_table(),
            "replay": claims_table(replay_claims()),
            "recommendations": recommendations(),
            **{folder: study_table(records(folder), LEARNED.get(folder)) for folder in studies()},
            "ppo": ppo_table(),
            "tuning": tuning_table(),
            "plain": plain_table(),
            "minatar-plain": minatar_table(),
        },
    )
    for folder in OWN_PAGES:
        experiment, found = EXPERIMENTS[folder], records(folder)
        table = experiment.table(found) if experiment.table else []
        fill(HERE / folder / "README.md", {"claims": claims_table(experiment.claims(found)), "cells": table})
    draw()


def fill(page: Path, tables: Mapping[str, Iterable[str]]) -> None:
    """Put each table in its place on the page."""
    text = page.read_text()
    for name, lines in tables.items():
        begin, end = f"<!-- {name}: made by tables.py -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        assert rest, f"{page} has no place for the table of {name}"
        text = before + begin + "\n" + "\n".join(lines) + "\n\n" + end + rest.partition(end)[2]
    page.write_text(text)


def claims_table(claims: Sequence[Claim]) -> Iterator[str]:
    yield "| the claim | what was seen here | 95 % interval | p | verdict |"
    yield "|---|---|---|---|---|"
    for claim in claims:
        needs = f"; needs {claim.settle}" if claim.settle and claim.verdict == "inconclusive" else ""
        p = "" if claim.p is None else f"{claim.p:.2g}"
        yield f"| {claim.claim} | {claim.shown} | {claim.interval} | {p} | **{claim.verdict}**{needs} |"


def experiment_claims() -> Iterator[Claim]:
    for name, experiment in EXPERIMENTS.items():
        found = runs_of(name) if name in EXPERIMENT_RUNS else []
        if found or experiment.preset.startswith("paper-"):
            yield from experiment.claims(found)


def sentences_table() -> Iterator[str]:
    """What the paper says of its Pendulum figure, sentence by sentence."""
    improves, at_five, at_ten, negative = EXPERIMENTS["pendulum"].claims(runs_of("pendulum"))
    sentences = {
        '"promising improvements over the baseline"': (improves,),
        '"notably more robust performance over a range of large eta values"': (at_five, at_ten),
        'eta < 0 "leads to worse performance"': (negative,),
    }
    yield "| the paper | here | verdict |"
    yield "|---|---|---|"
    for sentence, claims in sentences.items():
        for claim in claims:
            shown = f"{claim.claim}: {claim.shown} {claim.interval}"
            yield f"| {sentence} | {shown} | **{claim.verdict}**, p = {claim.p:.2g} |"


def replay_claims() -> list[Claim]:
    """Pendulum with the potential of the authors' code: the paper's claims, and whether the text's is better."""
    replay, scope = records("pendulum-replay"), AS_RUN.scope(["Pendulum-v1"])
    of_paper = [claim for claim in judge_pendulum(replay, scope) if claim.p is not None]
    return corrected([*of_paper, *judge_potentials(both_potentials(), scope)])


def both_potentials() -> list[Series]:
    """Pendulum with the text's and with the code's potential, at the etas that were run with both."""
    replay = runs_in("pendulum-replay")
    etas = {0.0, *(run.config.eta for run in replay)}
    return series_of([*(run for run in runs_in("pendulum") if run.config.eta in etas), *replay], ["potential"])


def recommendations() -> Iterator[str]:
    yield "| env | agent | steps | seeds | best eta | its gain on held-out seeds | answer |"
    yield "|---|---|---|---|---|---|---|"
    for folder in sorted(set(folders()) - set(OWN_PAGES)):
        found = records(folder)
        for each in recommend(found):
            own = [one for one in found if (one.task, one.variant) == (each.task, each.variant)]
            seeds, best, over = max(len(one.seeds) for one in own), "", ""
            if each.gain is not None and each.best is not None:
                seeds, best, over = each.gain.n, label(each.best), str(each.gain)
            cells = [each.task.env, agent(each.task, each.variant), f"{own[0].config.steps:,}", seeds, best, over]
            cells.append(f"**{each.answer}**" if each.helps else each.answer)
            yield f"| {' | '.join(map(str, cells))} |"


def label(eta: float | str) -> str:
    return eta_label(eta).replace("\N{MINUS SIGN}", "-")


def study_table(series: Sequence[Series], level: float | None) -> Iterator[str]:
    """All series of a study beside their eta = 0; columns that would say nothing are left out."""
    envs = [each.env.removeprefix("MinAtar/") for each in series]
    potentials = [potential(each.variant) if each.eta != 0.0 else "" for each in series]
    columns = {"env": envs} if len(set(envs)) > 1 else {}
    if len(set(potentials) - {""}) > 1:
        columns["potential"] = potentials
    columns["eta"] = [label(each.eta) for each in series]
    columns["seeds"] = [str(len(each.seeds)) for each in series]
    columns["mean over training"] = [with_interval(each.area) for each in series]
    columns |= gains_over_zero(series)
    if level is not None:
        columns[f"half have reached {level:g} by"] = [steps_until_half(each, level) for each in series]
    columns["at the end"] = [with_interval(each.final) for each in series]
    if any(each.diverged for each in series):
        columns["diverged"] = [str(each.diverged or "") for each in series]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for cells in zip(*columns.values(), strict=True):
        yield f"| {' | '.join(cells)} |"


def potential(variant: str) -> str:
    """Whose potential it is, or what is in its place, from the settings in which series differ."""
    settings = dict(setting.split("=") for setting in variant.split(", ") if setting)
    rescaled = settings.pop("control", "none") == "rescaled"
    return "rescaling" if rescaled else ", ".join(settings.values())


def gains_over_zero(series: Sequence[Series]) -> dict[str, list[str]]:
    gains, p_values, seeds = [], [], []
    for each in series:
        zero = baseline_of(each, series)
        effect = gain(each, zero, area) if zero is not None and zero is not each else None
        gains.append(str(effect or ""))
        p_values.append(f"{effect.p:.2g}" if effect and effect.n > 1 else "")
        ahead = np.greater(*on_shared_seeds(area, each, zero)).sum() if zero is not None and effect else 0
        seeds.append(f"{ahead} of {effect.n}" if effect else "")
    return {"gain over eta = 0": gains, "p": p_values, "seeds that gain": seeds}


def steps_until_half(series: Series, level: float) -> str:
    steps = series.steps_to(level)
    return f"{steps:,.0f}" if np.isfinite(steps) else "never"


def agent(task: Task, variant: str) -> str:
    """What the table calls it; the zoo's settings are tuned ones."""
    prefix = "tuned " if "zoo" in task.sweep.parts else ""
    return f"{prefix}{task.algorithm.upper()}{f', {potential(variant)}' if variant else ''}"


def ppo_table() -> Iterator[str]:
    """Of the runs that sb3.py leaves: SB3's own training loop has no records of ours."""
    scores: dict[float, dict[int, tuple[float, float]]] = {}  # over training and at the end
    for path in sorted((HERE / "sb3" / "ppo").glob("*.json")):
        run = json.loads(path.read_text())
        curve = np.array(run["steps"]), np.mean(run["scores"], axis=1)
        scores.setdefault(run["eta"], {})[run["seed"]] = float(area_under_curve(*curve)), float(final_score(*curve))
    yield "| eta | seeds | mean over training | against eta = 0 | p | score at the end |"
    yield "|---|---|---|---|---|---|"
    for eta, own in sorted(scores.items()):
        each = np.array([own[seed] for seed in sorted(own)])  # (seeds, 2)
        zero = np.array([scores[0.0][seed] for seed in sorted(own)])
        effect = paired_difference(each[:, 0], zero[:, 0], seed=SEED) if eta else None
        over, end = map(with_interval, each.T)
        against = f"{effect} | {effect.p:.2g}" if effect else " | "
        yield f"| {eta:g} | {len(each)} | {over} | {against} | {end} |"


def tuning_table() -> Iterator[str]:
    """Shaped agents that nobody tuned beside plain ones that somebody did, over as many steps as both have."""
    yield "| env | steps | tuned, plain | untuned, plain | untuned, shaped | shaped against tuned | p |"
    yield "|---|---|---|---|---|---|---|"
    for folder, zoo in UNTUNED.items():
        own = [each for each in records(folder) if each.eta == 0.0 or is_default(each.config)]
        plain = next(each for each in records(zoo) if each.eta == 0.0)
        steps = min(plain.config.steps, own[0].config.steps)
        found = tuned(own, partial(area_until, steps=steps))
        assert found is not None
        reference = area_until(plain, steps)
        effect = paired_difference(found.held_out, reference, seed=SEED)
        etas = ", ".join(f"{found.etas[i]:g}" for i in sorted(set(found.best.choices)))
        cells = [with_interval(scores) for scores in (reference, found.baseline, found.held_out)]
        cells[-1] += f" at eta = {etas}"
        yield f"| {plain.env} | {steps:,} | {' | '.join(cells)} | {effect} | {effect.p:.2g} |"


def is_default(config: Any) -> bool:
    return bool(config.potential_network == "online" and config.control == "none")


def area_until(series: Series, steps: int) -> Array:
    """Mean score over the first steps of training, (runs,)"""
    until = series.steps <= steps
    return area_under_curve(series.steps[until], series.curves[:, until])


def plain_table() -> Iterator[str]:
    """Plain agents with the zoo's settings: its own score, ours, and Stable-Baselines3's where sb3.py trained it."""
    yield "| settings | published | plain agent of | seeds | mean over training | score at the end | best evaluation |"
    yield "|---|---|---|---|---|---|---|"
    for folder, published in ZOO_PUBLISHED.items():
        ours = next(each for each in records(f"zoo/{folder}") if each.eta == 0.0)
        agents = {"bsrs": (ours.steps, ours.curves)}
        paths = sorted((HERE / "sb3" / "plain").glob(f"zoo-{folder}-seed*"))
        if theirs := [json.loads(path.read_text()) for path in paths]:
            agents["SB3"] = np.array(theirs[0]["steps"]), np.mean([run["scores"] for run in theirs], axis=-1)
        for who, (steps, scores) in agents.items():
            found = area_under_curve(steps, scores), final_score(steps, scores), scores.max(axis=1)
            yield f"| {folder} | {published} | {who} | {len(scores)} | {' | '.join(map(with_interval, found))} |"


def minatar_table() -> Iterator[str]:
    """Plain DQN beside the published curves, in the same quantity: the returns of the training episodes."""
    yield "| game | published, at 500,000 | here, training episodes | seeds | here, greedy at the end |"
    yield "|---|---|---|---|---|"
    for plain in (each for each in records("minatar") if each.eta == 0.0):
        game, last = minatar_game(plain.env), 0.95 * plain.config.steps
        traces = [run.trace("return") for run in plain.runs]
        returns = np.array([values[steps > last].mean() for steps, values in traces])
        cells = [game, MINATAR_PUBLISHED[game], with_interval(returns), len(returns), with_interval(plain.final)]
        yield f"| {' | '.join(map(str, cells))} |"


def with_interval(scores: Array) -> str:
    """The mean of (runs,) with its interval."""
    return str(bootstrap(mean, scores[:, None], seed=SEED))


def draw() -> None:
    with project_style():
        for name, (own, _) in EXPERIMENT_RUNS.items():
            if name != "atari":  # one seed of a hundredth of the length: a table says all there is
                save(own[0], EXPERIMENTS[name].draw(runs_of(name)))
        for folder in OWN_PAGES:
            save(folder, EXPERIMENTS[folder].draw(records(folder)))
        drawn = {folder for own, _ in EXPERIMENT_RUNS.values() for folder in own}
        save("pendulum-replay", draw_variants("pendulum-replay", both_potentials()))
        for folder in set(folders()) - {"pong", "pendulum-replay", *OWN_PAGES, *drawn}:
            save(folder, draw_variants(folder, records(folder)))
        save("pong", {"pong": draw_single_runs(runs_in("pong"))})


def draw_single_runs(runs: Sequence[RunRecord]) -> Figure:
    """The scores of runs that have one seed each, of training and of evaluation."""
    figure = Figure(figsize=(6, 3.4))
    axes = figure.subplots()
    colours = eta_colours([run.config.eta for run in runs])
    for run in sorted(runs, key=lambda run: float(run.config.eta)):
        colour = colours[run.config.eta]
        axes.plot(*run.trace("return"), color=colour, alpha=0.3, linewidth=1)
        scores = run.trace("score", "eval")
        axes.plot(*scores, color=colour, marker="o", markersize=3, label=f"$\\eta$ = {label(run.config.eta)}")
    axes.axhline(0, color="0.4", linewidth=0.8, linestyle="--")
    axes.set(xlabel="env steps", ylabel="score", title=f"{runs[0].config.env}, DQN, one seed")
    axes.xaxis.set_major_formatter(lambda step, _: f"{step / 1000:,.0f}k")
    axes.legend(title="greedy; faint: training")
    return figure


def save(folder: str, figures: dict[str, Figure]) -> None:
    for stem, figure in figures.items():
        figure.savefig(HERE / folder / f"{stem}.png", dpi=150, bbox_inches="tight")


def folders() -> list[str]:
    return sorted(path.name for path in HERE.iterdir() if next(path.glob("**/config.json"), None))


def studies() -> list[str]:
    """Folders of runs that have a table of their own on this page."""
    tuned = [f"zoo/{name}" for name in ZOO_PUBLISHED]
    return [*(folder for folder in folders() if folder not in ("zoo", *OWN_PAGES)), *tuned]


def records(folder: str, belongs: Callable[[Any], bool] = lambda config: True) -> list[Series]:
    runs = [run for run in runs_in(folder) if belongs(run.config)]
    if folder in BORROWED:
        other, field, is_shared = BORROWED[folder]
        return series_of([*(run for run in runs_in(other) if is_shared(run.config)), *runs], [field])
    return series_of(runs)


@cache
def runs_in(folder: str) -> list[RunRecord]:
    runs, broken = read_runs(HERE / folder)
    assert not broken, broken
    return runs


def runs_of(experiment: str) -> list[Series]:
    own, belongs = EXPERIMENT_RUNS[experiment]
    return [each for folder in own for each in records(folder, belongs)]


if __name__ == "__main__":
    main()
