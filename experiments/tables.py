"""The tables of the results pages, as lines of Markdown made from the records."""

import csv
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from bsrs.stats import Comparison, area_under_curve, bootstrap, final_score, mean, paired_difference
from bsrs.stats.aggregates import Array
from bsrs.stats.recommend import recommend
from bsrs.stats.records import Series, Task
from bsrs.stats.references import minatar_game
from bsrs.stats.summary import Failures, Row, baseline_of, failures_of, summary, task_reference
from experiments import records as store
from experiments.claims import COLUMNS, SEED, Claim, area, final, gain, tuned
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


def markdown(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Write a table; a column that says nothing is left out."""
    columns = [name for name in rows[0] if any(str(row[name]) for row in rows)]
    lines = [columns, *([str(row[name]) for name in columns] for row in rows)]
    head, *body = [f"| {' | '.join(cells)} |" for cells in lines]
    return [head, "|---" * len(columns) + "|", *body]


def claims_table(claims: Sequence[Claim]) -> list[str]:
    """A row for each claim, with the final scores and the failures next to the gain."""
    rows = []
    for claim in claims:
        *cells, verdict, needs = claim.cells
        rows.append(dict(zip(COLUMNS, [*cells, f"**{verdict}**" + (f"; needs {needs}" if needs else "")], strict=True)))
    return markdown(rows)


def study_table(series: Sequence[Series]) -> list[str]:
    """All series of a study next to their eta = 0, over training and at the end."""
    rows = summary(series)
    several_envs = len({row.series.env for row in rows}) > 1
    potentials = [potential(row.series.variant) if row.series.eta != 0.0 else "" for row in rows]
    several_potentials = len(set(potentials) - {""}) > 1
    return markdown(
        [
            {
                "env": row.series.env if several_envs else "",
                "potential": used if several_potentials else "",
                "eta": shown_eta(row.series),
                "over training": row.area,
                "gain": row.gain or "",
                "p": row.gain.p_text if row.gain and row.gain.n > 1 else "",
                "seeds ahead": f"{row.gain.ahead} of {row.gain.n}" if row.gain else "",
                "at the end": row.final,
                "change at the end": row.final_gain or "",
                "failed runs": row.failures,
            }
            for row, used in zip(rows, potentials, strict=True)
        ]
    )


def potential(variant: str) -> str:
    """Name the potential, or what is in its place, from the settings in which series differ."""
    settings = dict(setting.split("=") for setting in variant.split(", ") if setting)
    rescaled = settings.pop("control", "none") == "rescaled"
    return "rescaling" if rescaled else ", ".join(settings.values())


def recommendations() -> list[str]:
    """What `bsrs recommend` says of each set of runs, by training and by final score."""
    rows = []
    for folder in [name for name in folders() if name not in ("anatomy", "auto-eta")]:
        found = records(folder)
        for each, by_end in zip(recommend(found), recommend(found, "final"), strict=True):
            own = next(one for one in found if (one.task, one.variant) == (each.task, each.variant))
            best = next((one for one in found if one.task == each.task and one.eta == each.best), None)
            old = "" if best is None else shown_eta(best)
            answers = [one.answer.replace("use auto", f"use {old}") for one in (each, by_end)]
            rows.append(
                {
                    "agent": f"{agent(each.task, each.variant)} on {each.task.env}",
                    "steps": f"{own.config.steps:,}",
                    "eta": old,
                    "held-out gain over training": each.gain or "",
                    "change at the end": each.other or "",
                    "answer": answers[0],
                    "answer by final score": answers[1],
                }
            )
    return markdown(rows)


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


def readme_table() -> list[str]:
    """Does it help? The six tuned agents at eta = 1, over training and at the end, with failures."""
    autos = {folder: auto for folder, (_, auto) in tuned_rows("auto").items()}
    name = shown_eta(next(iter(autos.values())).series)
    return markdown(
        [
            {
                "tuned agent": ZOO_NAMES[folder],
                "gain over training, eta = 1": shaped.gain,
                "final score, without → with": change(plain.series, shaped.series),
                "failed, without → with": f"{failed(plain.failures)} → {failed(shaped.failures)}",
                f"gain over training, {name}": autos[folder].gain,
            }
            for folder, (plain, shaped) in tuned_rows(1.0).items()
        ]
    )


def change(plain: Series, shaped: Series) -> str:
    """Final scores of both, marked where the test finds them to differ."""
    found = gain(shaped, plain, final)
    lost = " **(worse)**" if found and found.verdict == "does not hold" else ""
    better = " (better)" if found and found.verdict == "holds" else ""
    return f"{plain.final.mean():.4g} → {shaped.final.mean():.4g}{lost}{better}"


def failed(failures: Failures) -> str:
    """Failed runs, without their bound."""
    return f"{failures.failed} of {failures.runs}"


def pooled_table() -> list[str]:
    """The six tuned agents together, in reference ranges: training and end, over seeds and over tasks."""
    series = [each for each in records("zoo") if each.config.control == "none"]
    rows = []
    everywhere = shared_etas(series, "")
    constants = [each.eta for each in next(iter(everywhere.values()))[1:]]
    for eta in (*constants, "auto"):
        tasks = shared_etas([each for each in series if each.eta in (0.0, eta)], eta if isinstance(eta, str) else "")
        found = gains_of(tasks)
        row = {"eta": shown_eta(next(iter(tasks.values()))[1])}
        for when, scores in (("training", found.training[0]), ("end", found.end[0])):
            for axis, over in ((1, "seeds"), (0, "tasks")):
                effect = against_zero(scores.mean(axis=axis))
                row[f"{when}, over {over}"] = str(effect)
                row["p" + " " * (len(row) // 2 - 1)] = effect.p_text  # a heading of its own for each column
        rows.append(row)
    return markdown(rows)


def plain_table() -> list[str]:
    """Baseline agents with the zoo's settings: its own score, ours, and Stable-Baselines3's where it was trained."""
    rows = []
    for folder, published in ZOO_PUBLISHED.items():
        ours = tuned_rows(1.0)[folder][0].series
        agents = {"bsrs": (ours.steps, ours.curves)}
        paths = sorted((store.RESULTS / "sb3" / "plain").glob(f"zoo-{folder}-seed*"))
        if theirs := [json.loads(path.read_text()) for path in paths]:
            agents["SB3"] = np.array(theirs[0]["steps"]), np.mean([run["scores"] for run in theirs], axis=-1)
        for who, (steps, scores) in agents.items():
            about = {"settings": folder, "published": published, "baseline agent of": who, "seeds": len(scores)}
            over, end = area_under_curve(steps, scores), final_score(steps, scores)
            found = {"over training": over, "at the end": end, "best evaluation": scores.max(axis=1)}
            rows.append({**about, **{name: with_interval(each) for name, each in found.items()}})
    return markdown(rows)


def tuning_table() -> list[str]:
    """Shaped agents that nobody tuned next to tuned baselines, over as many steps as both have."""
    rows = []
    for folder, zoo in UNTUNED.items():
        own = [each for each in records(folder) if each.eta == 0.0 or is_default(each)]
        plain = next(each for each in records(zoo) if each.eta == 0.0)
        steps = min(plain.config.steps, own[0].config.steps)
        found = tuned(own, partial(area_until, steps=steps))
        assert found is not None
        reference = area_until(plain, steps)
        effect = paired_difference(found.held_out, reference, seed=SEED)
        rows.append(
            {
                "env": plain.env,
                "steps": f"{steps:,}",
                "tuned, baseline": with_interval(reference),
                "untuned, baseline": with_interval(found.baseline),
                "untuned, shaped": f"{with_interval(found.held_out)} at eta = {found.chosen}",
                "shaped against tuned": effect,
                "p": effect.p_text,
            }
        )
    return markdown(rows)


def is_default(series: Series) -> bool:
    """Whether the runs have the paper's potential and no control."""
    return bool(series.config.potential_network == "online" and series.config.control == "none")


def area_until(series: Series, steps: int) -> Array:
    """Mean score over the first steps of training, (runs,)"""
    until = series.steps <= steps
    return area_under_curve(series.steps[until], series.curves[:, until])


# --------------------------------------------------------------------------------------------------------------
# Others.


def ppo_table() -> list[str]:
    """PPO of Stable-Baselines3, whose own training loop has no records of ours."""
    scores: dict[float, dict[int, tuple[float, float]]] = {}  # over training and at the end
    for path in sorted((store.RESULTS / "sb3" / "ppo").glob("*.json")):
        run = json.loads(path.read_text())
        curve = np.array(run["steps"]), np.mean(run["scores"], axis=1)
        scores.setdefault(run["eta"], {})[run["seed"]] = float(area_under_curve(*curve)), float(final_score(*curve))
    rows = []
    for eta, own in sorted(scores.items()):
        each = np.array([own[seed] for seed in sorted(own)])  # (seeds, 2)
        zero = np.array([scores[0.0][seed] for seed in sorted(own)])
        over, end = (paired_difference(*pair, seed=SEED) if eta else None for pair in zip(each.T, zero.T, strict=True))
        rows.append(
            {
                "eta": f"{eta:g}",
                "seeds": len(each),
                "over training": with_interval(each[:, 0]),
                "gain": over or "",
                "p": over.p_text if over else "",
                "at the end": with_interval(each[:, 1]),
                "change at the end": end or "",
            }
        )
    return markdown(rows)


def minatar_table() -> list[str]:
    """Baseline DQN next to the published curves, in the same quantity: the returns of the training episodes."""
    rows = []
    for plain in (each for each in records("minatar") if each.eta == 0.0):
        game, last = str(minatar_game(plain.env)), 0.95 * plain.config.steps
        traces = [run.trace("return") for run in plain.runs]
        returns = np.array([values[steps > last].mean() for steps, values in traces])
        rows.append(
            {
                "game": game,
                "published, at 500,000": MINATAR_PUBLISHED[game],
                "here, training episodes": with_interval(returns),
                "seeds": len(returns),
                "here, greedy at the end": with_interval(plain.final),
            }
        )
    return markdown(rows)


def with_interval(scores: Array) -> str:
    """The mean of (runs,) with its interval."""
    return str(bootstrap(mean, scores[:, None], seed=SEED))


def calibration_table() -> list[str]:
    """How often a verdict says "holds" where means are equal, from results/calibration.json."""
    rows = json.loads((store.RESULTS / "calibration.json").read_text())["rows"]
    names = list(dict.fromkeys(row["distribution"] for row in rows))
    found: dict[tuple[int, str], dict[str, object]] = {}
    for row in sorted(rows, key=lambda row: row["n"]):
        empty = {"verdict by": row["statistic"], "seeds": row["n"], **dict.fromkeys(names, "")}
        found.setdefault((row["n"], row["statistic"]), empty)[row["distribution"]] = f"{row['false_holds']:.1%}"
    return markdown(list(found.values()))


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


def task_rows() -> list[str]:
    """One row for each task, at eta = 1 everywhere: nothing is chosen by looking at it."""
    tasks = [(f"tuned {ZOO_NAMES[name]}", f"zoo/{name}", "zoo") for name in ZOO_NAMES]
    tasks += [("TD3 on Pendulum, the paper's", "pendulum", "pendulum"), ("DQN on CartPole", "cartpole", "cartpole")]
    tasks += [
        ("DQN on Acrobot", "acrobot-full", "target-network"),
        ("DQN on LunarLander", "lunar-lander", "target-network"),
    ]
    found = [(name, defaults(records(folder)), page) for name, folder, page in tasks]
    minatar = records("minatar")
    for env in dict.fromkeys(each.env for each in minatar):
        name = f"DQN on MinAtar's {minatar_game(env)}"
        found.append((name, [each for each in minatar if each.env == env], "minatar"))
    rows = []
    for name, own, page in found:
        plain, shaped = (next(each for each in own if each.eta == eta) for eta in (0.0, 1.0))
        counts = [failures_of(each, task_reference(plain.task, own)) for each in (plain, shaped)]
        rows.append(
            {
                "agent": name,
                "eta": 1,
                "gain over training": gain(shaped, plain, area),
                "final score, without → with": change(plain, shaped),
                "failed, without → with": " → ".join(f"{each.failed}/{each.runs}" for each in counts),
                "page": f"[{page}]({page}/README.md)",
            }
        )
    return markdown(rows)


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
