"""The tables of the results pages, as lines of Markdown made from the records."""

import csv
import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from bsrs.figures.style import eta_label
from bsrs.stats import area_under_curve, bootstrap, final_score, mean, paired_difference
from bsrs.stats.aggregates import Array
from bsrs.stats.recommend import recommend
from bsrs.stats.records import Series, Task
from bsrs.stats.references import minatar_game
from bsrs.stats.resampling import three_digits
from bsrs.stats.summary import SEED, Row, failures_of, gain, summary, task_reference
from experiments import records as store
from experiments.claims import COLUMNS, Claim, area, final, tuned
from experiments.pooling import against_zero, gains_of, shared_etas
from experiments.records import by_eta, folders, records, shown_eta

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


def markdown(columns: str, rows: Iterable[Sequence[object]]) -> list[str]:
    """Write a table with the columns of `a | b | c`; one that says nothing is left out."""
    lines = [columns.split(" | "), *([str(cell) for cell in row] for row in rows)]
    kept = [i for i in range(len(lines[0])) if any(line[i] for line in lines[1:])]
    head, *body = [f"| {' | '.join(line[i] for i in kept)} |" for line in lines]
    return [head, "|---" * len(kept) + "|", *body]


def claims_table(claims: Sequence[Claim]) -> list[str]:
    """Write a row for each claim, with the final scores and the failures next to the gain."""
    rows = []
    for claim in claims:
        *cells, verdict, needs = claim.cells
        rows.append([*cells, f"**{verdict}**" + (f"; needs {needs}" if needs else "")])
    return markdown(" | ".join(COLUMNS), rows)


def study_table(series: Sequence[Series]) -> list[str]:
    """Write all series of a study next to their eta = 0, over training and at the end."""
    rows = summary(series)
    several_envs = len({row.series.env for row in rows}) > 1
    potentials = [potential(row.series.variant) if row.series.eta != 0.0 else "" for row in rows]
    several_potentials = len(set(potentials) - {""}) > 1
    table = []
    for row, used in zip(rows, potentials, strict=True):
        gained = ("", "", "")
        if row.gain:
            gained = str(row.gain), row.gain.p_text if row.gain.n > 1 else "", f"{row.gain.ahead} of {row.gain.n}"
        about = row.series.env if several_envs else "", used if several_potentials else "", shown_eta(row.series)
        table.append((*about, row.area, *gained, row.final, row.final_gain or "", row.failures))
    return markdown(
        "env | potential | eta | over training | gain | p | seeds ahead | at the end | change at the end | failed runs",
        table,
    )


def potential(variant: str) -> str:
    """Name the potential, or what is in its place, from the settings in which series differ."""
    settings = dict(setting.split("=") for setting in variant.split(", ") if setting)
    rescaled = settings.pop("control", "none") == "rescaled"
    return "rescaling" if rescaled else ", ".join(settings.values())


def recommendations() -> list[str]:
    """Tabulate what `bsrs recommend` says of each set of runs, by training and by final score."""
    rows = []
    for folder in [name for name in folders() if name not in ("anatomy", "auto", "auto-eta")]:
        found = records(folder)
        for each, by_end in zip(recommend(found), recommend(found, "final"), strict=True):
            own = next(one for one in found if (one.task, one.variant) == (each.task, each.variant))
            best = next((one for one in found if one.task == each.task and one.eta == each.best), None)
            old = "" if best is None else shown_eta(best)
            answers = [one.answer.replace("use auto", f"use {old}") for one in (each, by_end)]
            about = f"{agent(each.task, each.variant)} on {each.task.env}", f"{own.config.steps:,}", old
            rows.append((*about, each.gain or "", each.other or "", *answers))
    columns = "agent | steps | eta | held-out gain over training | change at the end | answer | answer by final score"
    return markdown(columns, rows)


def agent(task: Task, variant: str) -> str:
    """Name the agent; the zoo's settings are tuned ones."""
    prefix = "tuned " if "zoo" in task.sweep.parts else ""
    return f"{prefix}{task.algorithm.upper()}{f', {potential(variant)}' if variant else ''}"


# --------------------------------------------------------------------------------------------------------------
# Tuned agents.


def readme_table() -> list[str]:
    """Tabulate the six tuned agents at eta = 1, over training and at the end, with failures."""
    rows = []
    for folder, name in ZOO_NAMES.items():
        own = by_eta(records(f"zoo/{folder}"))
        plain, shaped, auto = (own[eta] for eta in (0.0, 1.0, "auto"))
        end, failed = change(plain, shaped), failed_runs(plain, shaped, " of ")
        rows.append((name, gain(shaped, plain, area), end, failed, gain(auto, plain, area)))
    return markdown(
        "tuned agent | gain over training, eta = 1 | final score, without → with | failed, without → with"
        f" | gain over training, {shown_eta(auto)}",
        rows,
    )


def failed_runs(plain: Series, shaped: Series, of: str) -> str:
    """Count the failed runs of both."""
    counts = [failures_of(each, task_reference(plain.task, [plain, shaped])) for each in (plain, shaped)]
    return " → ".join(f"{each.failed}{of}{each.runs}" for each in counts)


def change(plain: Series, shaped: Series) -> str:
    """Format the final scores of both, marked where the test finds them to differ."""
    found = gain(shaped, plain, final)
    lost = " **(worse)**" if found and found.verdict == "does not hold" else ""
    better = " (better)" if found and found.verdict == "holds" else ""
    return f"{three_digits(plain.final.mean())} → {three_digits(shaped.final.mean())}{lost}{better}"


def pooled_table() -> list[str]:
    """Tabulate the six tuned agents together, in reference ranges: training and end, over seeds and over tasks."""
    series = [each for each in records("zoo") if each.config.control == "none"]
    rows = []
    everywhere = shared_etas(series, "")
    constants = [each.eta for each in next(iter(everywhere.values()))[1:]]
    for eta in (*constants, "auto"):
        tasks = shared_etas([each for each in series if each.eta in (0.0, eta)], eta if isinstance(eta, str) else "")
        found = gains_of(tasks)
        row = [shown_eta(next(iter(tasks.values()))[1])]
        for scores in (found.training[0], found.end[0]):
            for axis in (1, 0):
                effect = against_zero(scores.mean(axis=axis))
                row += [str(effect), effect.p_text]
        rows.append(row)
    return markdown(
        "eta | training, over seeds | p | training, over tasks | p | end, over seeds | p | end, over tasks | p", rows
    )


def plain_table() -> list[str]:
    """Tabulate baselines with the zoo's settings: its own score, ours, and Stable-Baselines3's where it was trained."""
    rows = []
    for folder, published in ZOO_PUBLISHED.items():
        ours = by_eta(records(f"zoo/{folder}"))[0.0]
        agents = {"bsrs": (ours.steps, ours.curves)}
        paths = sorted((store.RESULTS / "sb3" / "plain").glob(f"zoo-{folder}-seed*"))
        if theirs := [json.loads(path.read_text()) for path in paths]:
            agents["SB3"] = np.array(theirs[0]["steps"]), np.mean([run["scores"] for run in theirs], axis=-1)
        for who, (steps, scores) in agents.items():
            found = area_under_curve(steps, scores), final_score(steps, scores), scores.max(axis=1)
            rows.append((folder, published, who, len(scores), *map(with_interval, found)))
    columns = "settings | published | baseline agent of | seeds | over training | at the end | best evaluation"
    return markdown(columns, rows)


def tuning_table() -> list[str]:
    """Tabulate untuned shaped agents next to tuned baselines, over as many steps as both have."""
    rows = []
    for folder, zoo in UNTUNED.items():
        own, plain = by_eta(records(folder)), by_eta(records(zoo))[0.0]
        steps = min(plain.config.steps, own[0.0].config.steps)
        found = tuned(list(own.values()), partial(area_until, steps=steps))
        assert found is not None
        reference = area_until(plain, steps)
        effect = paired_difference(found.held_out, reference, seed=SEED)
        cells = [with_interval(scores) for scores in (reference, found.baseline, found.held_out)]
        cells[-1] += f" at eta = {', '.join(eta_label(each.eta) for each in found.chosen)}"
        rows.append((plain.env, f"{steps:,}", *cells, effect, effect.p_text))
    columns = "env | steps | tuned, baseline | untuned, baseline | untuned, shaped | shaped against tuned | p"
    return markdown(columns, rows)


def area_until(series: Series, steps: int) -> Array:
    """Compute the mean score over the first steps of training, (runs,)."""
    until = series.steps <= steps
    return area_under_curve(series.steps[until], series.curves[:, until])


# --------------------------------------------------------------------------------------------------------------
# Others.


def ppo_table() -> list[str]:
    """Tabulate PPO of Stable-Baselines3, whose own training loop leaves no run folders."""
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
        p = over.p_text if over else ""
        found = with_interval(each[:, 0]), over or "", p, with_interval(each[:, 1]), end or ""
        rows.append((f"{eta:g}", len(each), *found))
    return markdown("eta | seeds | over training | gain | p | at the end | change at the end", rows)


def minatar_table() -> list[str]:
    """Tabulate baseline DQN next to the published curves, as returns of the training episodes."""
    rows = []
    for plain in (each for each in records("minatar") if each.eta == 0.0):
        game, last = str(minatar_game(plain.env)), 0.95 * plain.config.steps
        traces = [run.trace("return") for run in plain.runs]
        returns = np.array([values[steps > last].mean() for steps, values in traces])
        rows.append((game, MINATAR_PUBLISHED[game], with_interval(returns), len(returns), with_interval(plain.final)))
    columns = "game | published, at 500,000 | here, training episodes | seeds | here, greedy at the end"
    return markdown(columns, rows)


def with_interval(scores: Array) -> str:
    """Format the mean of (runs,) with its interval."""
    return str(bootstrap(mean, scores[:, None], seed=SEED))


def calibration_table() -> list[str]:
    """Tabulate how often a verdict is "holds" where means are equal, from results/calibration.json."""
    rows = json.loads((store.RESULTS / "calibration.json").read_text())["rows"]
    names = list(dict.fromkeys(row["distribution"] for row in rows))
    tested = dict.fromkeys((row["statistic"], row["n"]) for row in sorted(rows, key=lambda row: row["n"]))
    rate = {(row["statistic"], row["n"], row["distribution"]): f"{row['false_holds']:.1%}" for row in rows}
    cells = [[*key, *(rate.get((*key, name), "") for name in names)] for key in tested]
    return markdown(" | ".join(["verdict by", "seeds", *names]), cells)


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
            writer.writerows((folder, *_csv_row(row)) for row in summary(records(folder)))


def _csv_row(row: Row) -> list[object]:
    own = row.series
    about = own.config.algorithm, own.env, potential(own.variant), shown_eta(own), len(own.seeds), own.config.steps
    numbers = [float(end) for each in (row.area, row.final) for end in (each.estimate, each.low, each.high)]
    for effect in (row.gain, row.final_gain):
        numbers += [effect.mean, effect.low, effect.high, effect.p] if effect else [np.nan] * 4
    cells = [f"{number:.5g}" if np.isfinite(number) else "" for number in numbers]
    return [*about, *cells, row.failures.failed, own.diverged, f"{row.failures.bound:.5g}"]


def task_rows() -> list[str]:
    """Write one row for each task, at eta = 1 everywhere: nothing is chosen by looking at it."""
    tasks = [(f"tuned {ZOO_NAMES[name]}", f"zoo/{name}", "zoo") for name in ZOO_NAMES]
    tasks += [("TD3 on Pendulum, the paper's", "pendulum", "pendulum"), ("DQN on CartPole", "cartpole", "cartpole")]
    tasks += [
        ("DQN on Acrobot", "acrobot-full", "target-network"),
        ("DQN on LunarLander", "lunar-lander", "target-network"),
    ]
    found = [(name, by_eta(records(folder)), page) for name, folder, page in tasks]
    minatar = records("minatar")
    for env in dict.fromkeys(each.env for each in minatar):
        own = by_eta([each for each in minatar if each.env == env])
        found.append((f"DQN on MinAtar's {minatar_game(env)}", own, "minatar"))
    rows = []
    for name, own, page in found:
        plain, shaped = own[0.0], own[1.0]
        gained, end, failed = gain(shaped, plain, area), change(plain, shaped), failed_runs(plain, shaped, "/")
        rows.append((name, 1, gained, end, failed, f"[{page}]({page}/README.md)"))
    columns = "agent | eta | gain over training | final score, without → with | failed, without → with | page"
    return markdown(columns, rows)
