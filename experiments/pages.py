"""The pages, figures and numbers of results/, and README's table: `python -m experiments tables` makes them all.

Nothing is trained. Tables, figures and all-results.csv come from the records. The text of the studies' pages is in
results/studies.toml; that of the other pages is written by hand around the marked tables.
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

from matplotlib.figure import Figure

from bsrs.errors import BadInput
from bsrs.figures.style import eta_colours, new_figure, project_style
from bsrs.stats import Verdict
from bsrs.stats.records import RunRecord, Series, series_of
from bsrs.stats.summary import gain
from experiments import records as store
from experiments.anatomy import anatomy_table, by_cell
from experiments.auto_eta import auto_table
from experiments.claims import Claim, Scope, area, corrected, failures_text, final, judged
from experiments.continuous import judge_pendulum, judge_potentials
from experiments.experiments import EXPERIMENTS
from experiments.figures import draw_readme, draw_variants
from experiments.records import EXPERIMENT_RUNS, records, runs_in, runs_of, shown_eta
from experiments.tables import (
    calibration_table,
    claims_table,
    markdown,
    minatar_table,
    plain_table,
    pooled_table,
    ppo_table,
    readme_table,
    recommendations,
    study_table,
    task_rows,
    tuning_table,
    write_csv,
)
from experiments.theory import judge_theory

PAPERS = ("atari", "pendulum", "mujoco", "target-ablation")
OURS = ("zoo", "minatar", "rescaling")


def main() -> None:
    """Make everything in the working directory, which is the project's folder or a copy of it."""
    if not (store.RESULTS / "studies.toml").exists():
        raise BadInput(f"{store.RESULTS} holds no studies.toml; run this in the project's folder")
    with project_style():
        draw()
    for name, study in studies().items():
        page = store.RESULTS / name / "README.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text("\n".join(study_page(study)) + "\n")
    marked = {
        "README.md": {"tasks": task_rows(), "scoreboard": scoreboard()},
        "paper-claims.md": {
            "theory": claims_table(theory()),
            **{name: claims_table(claims_of(name)) for name in (*PAPERS, *OURS)},
            "pendulum-target": claims_table(claims_of("pendulum-target")),
        },
        "methods.md": {"calibration": calibration_table(), "recommendations": recommendations()},
    }
    for name, tables in marked.items():
        fill(store.RESULTS / name, tables)
    write_csv(store.RESULTS / "all-results.csv")
    if Path("README.md").exists():
        fill(Path("README.md"), {"results": readme_table()})


def fill(page: Path, tables: Mapping[str, Iterable[str]]) -> None:
    """Put each table between its marks on the page."""
    text = page.read_text()
    for name, lines in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        assert end in rest, f"{page} has no place for the table of {name}"
        text = f"{before}{begin}\n" + "\n".join(lines) + f"\n{end}{rest.partition(end)[2]}"
    page.write_text(text)


# --------------------------------------------------------------------------------------------------------------
# Pages of studies: one template.


def studies() -> dict[str, dict[str, Any]]:
    """Read the studies in their order."""
    return tomllib.loads((store.RESULTS / "studies.toml").read_text())


def study_page(study: Mapping[str, Any]) -> Iterator[str]:
    """Write question, answer, figure, tables, caveats, command."""
    yield from (f"# {study['title']}", "", f"**Question.** {study['question']}", "")
    yield from (f"**Answer.** {study['answer'].strip()}", "")
    for figure in study["figures"]:
        yield from (f"![{study['title']}]({figure})", "")
    if caption := study.get("caption"):
        yield from (f"*{caption}*", "")
    for heading, table in study["tables"].items():
        kind, _, what = table.partition(":")
        yield from (f"## {heading}", "", *TABLES[kind](what), "")
    yield from ("## Caveats", "", study["caveats"].strip(), "")
    yield from ("Intervals, tests and failures are defined in [methods](../methods.md).", "")
    yield from ("## Command", "", "```sh", *study["commands"], "```", "")
    yield "`python -m experiments tables` rebuilds this page from the records."


# --------------------------------------------------------------------------------------------------------------
# Claims.


@cache
def claims_of(name: str) -> list[Claim]:
    """Judge the claims of an experiment from its records."""
    if name == "pendulum-replay":
        return replay_claims()
    if name == "pendulum-target":
        return [pendulum_target()]
    return EXPERIMENTS[name].claims(runs_of(name))


@cache
def theory() -> list[Claim]:
    """Test the paper's theorems on random tables."""
    return judge_theory()


def replay_claims() -> list[Claim]:
    """Judge Pendulum with the potential of the authors' code: the paper's claims, and whether the text's is better."""
    replay, scope = records("pendulum-replay"), EXPERIMENTS["pendulum"].scope()
    of_paper = [claim for claim in judge_pendulum(replay, scope) if claim.p is not None]
    return corrected([*of_paper, *judge_potentials(both_potentials(), scope)])


def pendulum_target() -> Claim:
    """Judge the ablation on TD3: the paper's sentence is about all agents, and one of them contradicts it."""
    own = by_cell(records("anatomy"))["Pendulum-v1"]
    effect, end = (gain(own["target"], own["baseline"], value) for value in (area, final))
    assert effect is not None
    opposite: dict[Verdict, Verdict] = {"holds": "does not hold", "does not hold": "holds"}
    denied = replace(effect, verdict=opposite.get(effect.verdict, "inconclusive"))
    text = "With the target network there is no positive difference from eta = 0 (TD3 on Pendulum)"
    shown, failures = f"{effect.mean:+.3g} over training at eta = 2", failures_text([own["target"]], [own["baseline"]])
    return judged(text, denied, shown, Scope({}, ""), end=end, failures=failures)


def both_potentials() -> list[Series]:
    """Put together Pendulum with the text's and the code's potential, at the etas that were run with both."""
    replay = runs_in("pendulum-replay")
    etas = {0.0, *(run.config.eta for run in replay)}
    return series_of([*(run for run in runs_in("pendulum") if run.config.eta in etas), *replay], ["potential"])


def scoreboard() -> list[str]:
    """Count the paper's claims by topic and verdict."""
    ablation = [*claims_of("target-ablation"), *claims_of("pendulum-target")]
    topics = {
        "Theory": theory(),
        "Pendulum": claims_of("pendulum"),
        "Online or target network": [claim for claim in ablation if not claim.claim.startswith("(Ours)")],
        "Atari and MuJoCo": [*claims_of("atari"), *claims_of("mujoco")],
    }
    verdicts = get_args(Verdict)
    counts = {topic: Counter(claim.verdict for claim in claims) for topic, claims in topics.items()}
    rows = [[topic, *(count[verdict] or "" for verdict in verdicts)] for topic, count in counts.items()]
    return markdown(" | ".join(["the paper on", *verdicts]), rows)


TABLES: dict[str, Callable[[str], Iterable[str]]] = {
    "study": lambda folder: study_table(records(folder)),
    "claims": lambda name: claims_table(claims_of(name)),
    "cells": lambda name: {"anatomy": anatomy_table, "auto-eta": auto_table}[name](runs_of(name)),
    "pooled": lambda _: pooled_table(),
    "plain": lambda _: plain_table(),
    "tuning": lambda _: tuning_table(),
    "minatar": lambda _: minatar_table(),
    "ppo": lambda _: ppo_table(),
}


# --------------------------------------------------------------------------------------------------------------
# Figures.


def draw() -> None:
    """Draw every figure next to its page."""
    for name in EXPERIMENT_RUNS:
        if name != "atari":  # one seed of a hundredth of the length: a table says all there is
            found = records(name) if name == "zoo" else runs_of(name)  # without the zoo's control
            save(FIGURE_FOLDERS.get(name, name), EXPERIMENTS[name].draw(found))
    save("pendulum-replay", draw_variants("pendulum-replay", both_potentials()))
    for folder in ("acrobot", "acrobot-short"):
        save("acrobot", draw_variants(folder, records(folder)))
    save("pong", {"pong": draw_single_runs(runs_in("pong"))})
    readme = Path("docs/images/readme.png")
    readme.parent.mkdir(parents=True, exist_ok=True)
    draw_readme().savefig(readme, dpi=130, metadata={"Software": None})


FIGURE_FOLDERS = {"target-ablation": "target-network", "rescaling": "cartpole", "auto-eta": "auto"}


def draw_single_runs(runs: Sequence[RunRecord]) -> Figure:
    """Draw the scores of runs that have one seed each, of training and of evaluation."""
    figure, axes = new_figure(6, 3.4)
    colours = eta_colours([run.config.eta for run in runs])
    for series in series_of(runs):
        run, colour = series.runs[0], colours[series.eta]
        axes.plot(*run.trace("return"), color=colour, alpha=0.3, linewidth=1)
        scores = run.trace("score", "eval")
        axes.plot(*scores, color=colour, marker="o", markersize=3, label=f"$\\eta$ = {shown_eta(series)}")
    axes.axhline(0, color="0.4", linewidth=0.8, linestyle="--")
    axes.set(xlabel="env steps", ylabel="score", title=f"{runs[0].config.env}, DQN, one seed")
    axes.xaxis.set_major_formatter(lambda step, _: f"{step / 1000:,.0f}k")
    axes.legend(title="greedy; faint: training")
    return figure


def save(folder: str, figures: Mapping[str, Figure]) -> None:
    """Write the figures of a folder."""
    (store.RESULTS / folder).mkdir(exist_ok=True)
    for stem, figure in figures.items():
        figure.savefig(
            store.RESULTS / folder / f"{stem}.png", dpi=150, bbox_inches="tight", metadata={"Software": None}
        )


if __name__ == "__main__":
    main()
