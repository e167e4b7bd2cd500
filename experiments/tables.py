"""The tables of the results pages, as lines of Markdown made from the records."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from bsrs.stats import Comparison, area_under_curve, bootstrap, final_score, mean, paired_difference
from bsrs.stats.aggregates import Array
from bsrs.stats.recommend import recommend
from bsrs.stats.records import Series, Task
from bsrs.stats.references import minatar_game
from bsrs.stats.resampling import three_digits
from bsrs.stats.summary import Row, baseline_of, failures_of, summary, task_reference
from experiments import records as store
from experiments.claims import SEED, Claim, area, final, gain, tuned
from experiments.continuous import shared_etas
from experiments.pooling import against_zero, gains_of
from experiments.records import folders, records, shown_eta

# Runs with settings that nobody tuned for the env, and the same algorithm as the zoo tuned it.
UNTUNED = {"cartpole": "zoo/cartpole", "acrobot-full": "zoo/acrobot", "lunar-lander": "zoo/lunarlander"}
# Young and Tian (2019), DQN's training returns at 500,000 frames, 30 runs with epsilon 0.1: read off the learning
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
ZOO_NAMES = {
    "cartpole": "DQN on CartPole",
    "acrobot": "DQN on Acrobot",
    "mountaincar": "DQN on MountainCar",
    "lunarlander": "DQN on LunarLander",
    "pendulum-td3": "TD3 on Pendulum",
    "pendulum-sac": "SAC on Pendulum",
}


def lines_of(columns: Mapping[str, Sequence[object]]) -> Iterator[str]:
    """Write a table; a column that says nothing is left out."""
    shown = {name: cells for name, cells in columns.items() if any(str(cell) for cell in cells)}
    yield f"| {' | '.join(shown)} |"
    yield "|---" * len(shown) + "|"
    for cells in zip(*shown.values(), strict=True):
        yield f"| {' | '.join(map(str, cells))} |"


def claims_table(claims: Sequence[Claim]) -> Iterator[str]:
    """A row for each claim, with the final scores and the failures next to the gain."""
    needs = [f"; needs {c.settle}" if c.settle and c.verdict == "inconclusive" else "" for c in claims]
    yield from lines_of(
        {
            "claim": [claim.claim for claim in claims],
            "what was seen": [claim.shown for claim in claims],
            "95% interval": [claim.interval for claim in claims],
            "at the end": [claim.end for claim in claims],
            "failed runs": [claim.failures for claim in claims],
            "p (Holm)": ["" if claim.p is None else f"{claim.p:.2g}" for claim in claims],
            "verdict": [f"**{c.verdict}**{need}" for c, need in zip(claims, needs, strict=True)],
        }
    )


def study_table(series: Sequence[Series]) -> Iterator[str]:
    """All series of a study next to their eta = 0, over training and at the end."""
    rows = summary(series)
    several_envs = len({row.series.env for row in rows}) > 1
    potentials = [potential(row.series.variant) if row.series.eta != 0.0 else "" for row in rows]
    yield from lines_of(
        {
            "env": [row.series.env if several_envs else "" for row in rows],
            "potential": potentials if len(set(potentials) - {""}) > 1 else [""] * len(rows),
            "eta": [shown_eta(row.series) for row in rows],
            "over training": [row.area for row in rows],
            "gain": [row.gain or "" for row in rows],
            "p": [row.gain.p_text if row.gain and row.gain.n > 1 else "" for row in rows],
            "seeds ahead": [f"{row.gain.ahead} of {row.gain.n}" if row.gain else "" for row in rows],
            "at the end": [row.final for row in rows],
            "change at the end": [row.final_gain or "" for row in rows],
            "failed runs": [row.failures for row in rows],
        }
    )


def potential(variant: str) -> str:
    """Name the potential, or what is in its place, from the settings in which series differ."""
    settings = dict(setting.split("=") for setting in variant.split(", ") if setting)
    rescaled = settings.pop("control", "none") == "rescaled"
    return "rescaling" if rescaled else ", ".join(settings.values())


def recommendations() -> Iterator[str]:
    """What `bsrs recommend` says of each set of runs, by training and by final score."""
    columns: dict[str, list[object]] = {
        name: [] for name in ("agent", "steps", "eta", "held-out gain over training", "change at the end", "answer",
                              "answer by final score")
    }  # fmt: skip
    for folder in [name for name in folders() if name not in ("anatomy", "auto-eta")]:
        found = records(folder)
        for each, by_end in zip(recommend(found), recommend(found, "final"), strict=True):
            own = next(one for one in found if (one.task, one.variant) == (each.task, each.variant))
            best = next((one for one in found if one.task == each.task and one.eta == each.best), None)
            old = "" if best is None else shown_eta(best)
            answers = [one.answer.replace("use auto", f"use {old}") for one in (each, by_end)]
            cells = (
                f"{agent(each.task, each.variant)} on {each.task.env}", f"{own.config.steps:,}",
                old, each.gain or "", each.other or "", *answers,
            )  # fmt: skip
            for column, cell in zip(columns.values(), cells, strict=True):
                column.append(cell)
    yield from lines_of(columns)


def agent(task: Task, variant: str) -> str:
    """Name the agent; the zoo's settings are tuned ones."""
    prefix = "tuned " if "zoo" in task.sweep.parts else ""
    return f"{prefix}{task.algorithm.upper()}{f', {potential(variant)}' if variant else ''}"


# --------------------------------------------------------------------------------------------------------------
# Tuned agents.


def tuned_rows(eta: float | str) -> dict[str, tuple[Row, Row]]:
    """The zoo's agents at one eta: folder -> the rows of eta = 0 and of that eta."""
    found = {}
    for folder in ZOO_NAMES:
        rows = {row.series.eta: row for row in summary(records(f"zoo/{folder}")) if row.series.config.control == "none"}
        if eta in rows:
            found[folder] = rows[0.0], rows[eta]
    return found


def readme_table() -> Iterator[str]:
    """Does it help? The six tuned agents at eta = 1, over training and at the end, with failures."""
    rows, autos = tuned_rows(1.0), tuned_rows("auto")
    name = shown_eta(next(iter(autos.values()))[1].series)
    yield from lines_of(
        {
            "tuned agent": [ZOO_NAMES[folder] for folder in rows],
            "gain over training, eta = 1": [shaped.gain for _, shaped in rows.values()],
            "final score, without → with": [change(plain.series, shaped.series) for plain, shaped in rows.values()],
            "failed, without → with": [failed(plain, shaped) for plain, shaped in rows.values()],
            f"gain over training, {name}": [autos[folder][1].gain for folder in rows],
        }
    )


def change(plain: Series, shaped: Series) -> str:
    """Final scores of both, marked where the test finds them to differ."""
    found = gain(shaped, plain, final)
    lost = " **(worse)**" if found and found.verdict == "does not hold" else ""
    better = " (better)" if found and found.verdict == "holds" else ""
    return f"{three_digits(plain.final.mean())} → {three_digits(shaped.final.mean())}{lost}{better}"


def failed(plain: Row, shaped: Row) -> str:
    """Failed runs of both."""
    return " → ".join(f"{row.failures.failed} of {row.failures.runs}" for row in (plain, shaped))


def pooled_table() -> Iterator[str]:
    """The six tuned agents together, in reference ranges: training and end, over seeds and over tasks."""
    series = [each for each in records("zoo") if each.config.control == "none"]
    columns: dict[str, list[object]] = {
        name: [] for name in ("eta", "training, over seeds", "p", "training, over tasks", "p ", "end, over seeds",
                              "p  ", "end, over tasks", "p   ")
    }  # fmt: skip
    everywhere = shared_etas(series, "")
    constants = [each.eta for each in next(iter(everywhere.values()))[1:]]
    for eta in (*constants, "auto"):
        tasks = shared_etas([each for each in series if each.eta in (0.0, eta)], eta if isinstance(eta, str) else "")
        found = gains_of(tasks)
        cells: list[object] = [shown_eta(next(iter(tasks.values()))[1])]
        for scores in (found.training[0], found.end[0]):
            for axis in (1, 0):
                effect = against_zero(scores.mean(axis=axis))
                cells += [str(effect), effect.p_text]
        for column, cell in zip(columns.values(), cells, strict=True):
            column.append(cell)
    yield from lines_of(columns)


def plain_table() -> Iterator[str]:
    """Baseline agents with the zoo's settings: its own score, ours, and Stable-Baselines3's where it was trained."""
    yield "| settings | published | baseline agent of | seeds | over training | at the end | best evaluation |"
    yield "|---|---|---|---|---|---|---|"
    for folder, published in ZOO_PUBLISHED.items():
        ours = tuned_rows(1.0)[folder][0].series
        agents = {"bsrs": (ours.steps, ours.curves)}
        paths = sorted((store.RESULTS / "sb3" / "plain").glob(f"zoo-{folder}-seed*"))
        if theirs := [json.loads(path.read_text()) for path in paths]:
            agents["SB3"] = np.array(theirs[0]["steps"]), np.mean([run["scores"] for run in theirs], axis=-1)
        for who, (steps, scores) in agents.items():
            found = area_under_curve(steps, scores), final_score(steps, scores), scores.max(axis=1)
            yield f"| {folder} | {published} | {who} | {len(scores)} | {' | '.join(map(with_interval, found))} |"


def tuning_table() -> Iterator[str]:
    """Shaped agents that nobody tuned next to tuned baselines, over as many steps as both have."""
    yield "| env | steps | tuned, baseline | untuned, baseline | untuned, shaped | shaped against tuned | p |"
    yield "|---|---|---|---|---|---|---|"
    for folder, zoo in UNTUNED.items():
        own = [each for each in records(folder) if each.eta == 0.0 or is_default(each)]
        plain = next(each for each in records(zoo) if each.eta == 0.0)
        steps = min(plain.config.steps, own[0].config.steps)
        found = tuned(own, partial(area_until, steps=steps))
        assert found is not None
        reference = area_until(plain, steps)
        effect = paired_difference(found.held_out, reference, seed=SEED)
        cells = [with_interval(scores) for scores in (reference, found.baseline, found.held_out)]
        cells[-1] += f" at eta = {found.chosen}"
        yield f"| {plain.env} | {steps:,} | {' | '.join(cells)} | {effect} | {effect.p_text} |"


def is_default(series: Series) -> bool:
    """Whether the runs have the paper's potential and no control."""
    return bool(series.config.potential_network == "online" and series.config.control == "none")


def area_until(series: Series, steps: int) -> Array:
    """Mean score over the first steps of training, (runs,)"""
    until = series.steps <= steps
    return area_under_curve(series.steps[until], series.curves[:, until])


# --------------------------------------------------------------------------------------------------------------
# Others.


def ppo_table() -> Iterator[str]:
    """PPO of Stable-Baselines3, whose own training loop has no records of ours."""
    scores: dict[float, dict[int, tuple[float, float]]] = {}  # over training and at the end
    for path in sorted((store.RESULTS / "sb3" / "ppo").glob("*.json")):
        run = json.loads(path.read_text())
        curve = np.array(run["steps"]), np.mean(run["scores"], axis=1)
        scores.setdefault(run["eta"], {})[run["seed"]] = float(area_under_curve(*curve)), float(final_score(*curve))
    yield "| eta | seeds | over training | gain | p | at the end | change at the end |"
    yield "|---|---|---|---|---|---|---|"
    for eta, own in sorted(scores.items()):
        each = np.array([own[seed] for seed in sorted(own)])  # (seeds, 2)
        zero = np.array([scores[0.0][seed] for seed in sorted(own)])
        over, end = (paired_difference(*pair, seed=SEED) if eta else None for pair in zip(each.T, zero.T, strict=True))
        p = over.p_text if over else ""
        cells = [with_interval(each[:, 0]), over or "", p, with_interval(each[:, 1]), end or ""]
        yield f"| {eta:g} | {len(each)} | {' | '.join(map(str, cells))} |"


def minatar_table() -> Iterator[str]:
    """Baseline DQN next to the published curves, in the same quantity: the returns of the training episodes."""
    yield "| game | published, at 500,000 | here, training episodes | seeds | here, greedy at the end |"
    yield "|---|---|---|---|---|"
    for plain in (each for each in records("minatar") if each.eta == 0.0):
        game, last = str(minatar_game(plain.env)), 0.95 * plain.config.steps
        traces = [run.trace("return") for run in plain.runs]
        returns = np.array([values[steps > last].mean() for steps, values in traces])
        cells = [game, MINATAR_PUBLISHED[game], with_interval(returns), len(returns), with_interval(plain.final)]
        yield f"| {' | '.join(map(str, cells))} |"


def with_interval(scores: Array) -> str:
    """The mean of (runs,) with its interval."""
    return str(bootstrap(mean, scores[:, None], seed=SEED))


def calibration_table() -> Iterator[str]:
    """How often a verdict says "holds" where means are equal, from results/calibration.json."""
    rows = json.loads((store.RESULTS / "calibration.json").read_text())["rows"]
    names = list(dict.fromkeys(row["distribution"] for row in rows))
    tested = list(dict.fromkeys((row["statistic"], row["n"]) for row in sorted(rows, key=lambda row: row["n"])))
    rate = {(row["statistic"], row["n"], row["distribution"]): row["false_holds"] for row in rows}
    columns: dict[str, list[object]] = {"verdict by": [name for name, _ in tested], "seeds": [n for _, n in tested]}
    for name in names:
        columns[name] = [f"{rate[(*key, name)]:.1%}" if (*key, name) in rate else "" for key in tested]
    yield from lines_of(columns)


CSV_COLUMNS = (
    "study", "algorithm", "env", "variant", "eta", "seeds", "steps", "training", "training_low", "training_high",
    "final", "final_low", "final_high", "gain", "gain_low", "gain_high", "gain_p", "final_gain", "final_gain_low",
    "final_gain_high", "final_gain_p", "failed", "diverged", "failure_bound",
)  # fmt: skip


def write_csv(path: Path) -> None:
    """Write every series of every study: mean, interval, gain and failures."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        for folder in folders():
            writer.writerows([_csv_cell(cell) for cell in _csv_row(folder, row)] for row in summary(records(folder)))


def _csv_row(folder: str, row: Row) -> list[object]:
    own = row.series
    cells: list[object] = [
        folder, own.config.algorithm, own.env, potential(own.variant), shown_eta(own),
        len(own.seeds), own.config.steps,
    ]  # fmt: skip
    for interval in (row.area, row.final):
        cells += [float(interval.estimate), float(interval.low), float(interval.high)]
    for effect in (row.gain, row.final_gain):
        cells += [effect.mean, effect.low, effect.high, effect.p] if effect else [""] * 4
    return [*cells, row.failures.failed, own.diverged, row.failures.bound]


def _csv_cell(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.5g}" if np.isfinite(cell) else ""
    return str(cell)


def task_rows() -> Iterator[str]:
    """One row for each task, at eta = 1 everywhere: nothing is chosen by looking at it."""
    tasks = [(f"tuned {ZOO_NAMES[name]}", f"zoo/{name}", "zoo") for name in ZOO_NAMES]
    tasks += [("TD3 on Pendulum, the paper's", "pendulum", "pendulum"), ("DQN on CartPole", "cartpole", "cartpole")]
    tasks += [
        ("DQN on Acrobot", "acrobot-full", "target-network"),
        ("DQN on LunarLander", "lunar-lander", "target-network"),
    ]
    columns: dict[str, list[object]] = {
        name: [] for name in ("agent", "eta", "gain over training", "final score, without → with",
                              "failed, without → with", "page")
    }  # fmt: skip
    found = [(name, own, page) for name, folder, page in tasks for own in [defaults(records(folder))]]
    minatar = records("minatar")
    for env in dict.fromkeys(each.env for each in minatar):
        name = f"DQN on MinAtar's {minatar_game(env)}"
        found.append((name, [each for each in minatar if each.env == env], "minatar"))
    for name, own, page in found:
        plain = next(each for each in own if each.eta == 0.0)
        shaped = next(each for each in own if each.eta == 1.0)
        reference = task_reference(plain.task, own)
        counts = [failures_of(each, reference) for each in (plain, shaped)]
        fails = " → ".join(f"{each.failed}/{each.runs}" for each in counts)
        cells = (name, 1, str(gain(shaped, plain, area)), change(plain, shaped), fails, f"[{page}]({page}/README.md)")
        for column, cell in zip(columns.values(), cells, strict=True):
            column.append(cell)
    yield from lines_of(columns)


def defaults(series: Sequence[Series]) -> list[Series]:
    """Without the other potentials and the controls."""
    return [
        each for each in series
        if getattr(each.config, "potential_network", "online") == "online" and each.config.control == "none"
    ]  # fmt: skip


def effect_of(folder: str, eta: float, value: str = "training") -> Comparison:
    """The gain of one eta in a folder: what prose quotes is looked up here."""
    own = defaults(records(folder))
    shaped = next(each for each in own if each.eta == eta)
    baseline = baseline_of(shaped, own)
    assert baseline is not None
    found = gain(shaped, baseline, area if value == "training" else final)
    assert found is not None
    return found
