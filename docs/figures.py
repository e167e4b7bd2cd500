"""Draw the site's figures: `python docs/figures.py`. Nothing is trained; the runs are those in results/."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from bsrs.cli import main as cli
from bsrs.cli.tabular import PAGE
from bsrs.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, eta_colours, eta_label, new_figure, project_style
from bsrs.report import Study, read_study, write_report
from bsrs.stats import Interval, bootstrap, mean
from bsrs.stats.records import Series, Task
from bsrs.stats.summary import baseline_of, on_shared_seeds, task_reference
from bsrs.tabular import MDP, GridMap, bellman, expected_next, grid_mdp, solve, state_value
from bsrs.tabular.grids import MOVES
from bsrs.tabular.theory import count_steps
from experiments.anatomy import draw_anatomy
from experiments.claims import area

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
GAMMA, SWEEPS = 0.8, 8
COMMAND = "bsrs report results/pendulum -o report.html"
FEWEST_SEEDS = 5


def main() -> None:
    """Draw every figure."""
    folders = [path for path in sorted((ROOT / "results").iterdir()) if next(path.glob("**/config.json"), None)]
    study = read_study([folder for folder in folders if folder.name != "anatomy"])
    anatomy = read_study([ROOT / "results" / "anatomy"])
    with project_style():
        save(idea(), "idea")
        save(adaptive_eta(), "adaptive-eta")
        save(how_auto_works(), "how-auto-works")
        everything = [row.series for row in study.rows]
        tuned = {task: members for task, members in tasks(study).items() if is_tuned(task)}
        save(results(tuned, everything), "results-tuned")
        save(choosing_eta(tuned), "choosing-eta")
        save(draw_anatomy([row.series for row in anatomy.rows])["anatomy"], "anatomy")
    command("tabular solve --map Taxi-v4 --gamma 0.9 --plot", str(IMAGES / "values.png"))
    command("tabular theory --map FrozenLake-v1 --gamma 0.9 --plot", str(IMAGES / "eigenvalues.png"))
    screenshots()


def command(words: str, *more: str) -> None:
    """One of the package's own."""
    cli([*words.split(), *more])


def save(figure: Figure, name: str) -> None:
    figure.savefig(IMAGES / f"{name}.png", dpi=150, metadata={"Software": None})


def idea() -> Figure:
    """V and the shaping term on the paper's gridworld after a few sweeps, and what shaping gains there."""
    grid = GridMap.named("paper")
    mdp = grid_mdp(grid)
    q = np.zeros((mdp.n_states, mdp.n_actions))
    for _ in range(SWEEPS):
        q = bellman(mdp, GAMMA, q)
    value = state_value(q)
    term = GAMMA * expected_next(mdp, value) - value[:, None]  # (S, A), eta = 1
    figure, axes = new_figure(10, 3.2, 1, 3, width_ratios=(1, 1, 1.1))
    drawn = _cells(axes[0], grid, np.repeat(value[:, None], 4, axis=1), f"V after {SWEEPS} sweeps")
    figure.colorbar(drawn, ax=axes[0], shrink=0.75, label="value")
    drawn = _cells(axes[1], grid, term, "Shaping term of each move")
    figure.colorbar(drawn, ax=axes[1], shrink=0.75, label="γV(s′) − V(s)")
    for (row, column), at in zip(np.argwhere(grid.is_state), value, strict=True):
        axes[0].text(column, row, f"{at:.2f}".lstrip("0") if at else "0", ha="center", va="center", fontsize=6)
    etas = np.arange(0, 0.45, 0.01)
    steps = count_steps(mdp, GAMMA, etas, seeds=range(20))[0].mean(axis=1)
    best = int(np.argmin(steps))
    axes[2].plot(etas, steps, color=BLUE)
    axes[2].plot(etas[best], steps[best], "o", color=ORANGE)
    saved = 1 - steps[best] / steps[0]
    axes[2].annotate(
        f"{saved:.0%} fewer sweeps", (etas[best], steps[best]), (0, -16), textcoords="offset points", ha="center"
    )
    axes[2].axhline(steps[0], color=GREY, linestyle=":", label="baseline")
    axes[2].set(xlabel="η", ylabel="sweeps to convergence", title="What it gains here", ylim=(0, 1.5 * steps[0]))
    axes[2].legend(loc="upper left")
    return figure


def _cells(ax: Axes, grid: GridMap, numbers: np.ndarray, title: str) -> PolyCollection:
    """Each cell as four triangles, one for each move: blue is positive, red negative, grey a wall."""
    triangles, colours = [], []
    for (row, column), moves in zip(np.argwhere(grid.is_state), numbers, strict=True):
        for (down, right), number in zip(MOVES, moves, strict=True):
            side = 0.5 * np.array([right, down])
            along = 0.5 * np.array([down, right])
            centre = np.array([column, row])
            triangles.append([centre, centre + side + along, centre + side - along])
            colours.append(number)
    largest = np.abs(numbers).max()
    signed = numbers.min() < 0
    shape = {"cmap": "RdBu" if signed else "Blues", "edgecolors": "face", "linewidths": 0.2}
    drawn = PolyCollection(triangles, array=np.array(colours), **shape)
    drawn.set_clim(-1.3 * largest if signed else 0, 1.3 * largest)
    ax.add_collection(drawn)
    height, width = grid.cells.shape
    ax.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal", title=title, facecolor="#8A8A8A")
    for letter in ("S", "G"):
        for row, column in np.argwhere(grid.cells == letter):
            ax.text(column + 0.32, row - 0.32, letter, ha="center", va="center", fontsize=7, fontweight="bold")
    ax.set_xticks(np.arange(width + 1) - 0.5, labels=[])
    ax.set_yticks(np.arange(height + 1) - 0.5, labels=[])
    ax.tick_params(length=0)
    return drawn


def adaptive_eta() -> Figure:
    """Residuals of value iteration, a constant eta, and two that are chosen in every step."""
    figure, axes = new_figure(7, 2.8, 1, 2, sharey=True)
    mdps = {"the paper's gridworld": grid_mdp("paper"), "a random MDP of 200 states": MDP.garnet(200, 4, 5, seed=0)}
    rules = {"η = 0": 0.0, "η = 0.2": 0.2, "η by Aitken": "aitken", "η by Anderson": "anderson"}
    for ax, (title, mdp) in zip(axes, mdps.items(), strict=True):
        for (name, eta), colour in zip(rules.items(), (BLACK, BLUE, ORANGE, GREEN), strict=True):
            solution = solve(mdp, 0.99, eta=eta)
            at = 1 + np.arange(len(solution.residuals))
            ax.plot(at, solution.residuals, color=colour, label=f"{name}: {solution.applications:,}")
        ax.set(yscale="log", ylim=(1e-6, None), xlabel="iterations", title=title)
        ax.legend(fontsize=7)
    axes[0].set_ylabel("residual")
    return figure


# ---- from the runs in results/


def how_auto_works() -> Figure:
    """V, the slope and eta of one run with eta="auto"."""
    lines = [json.loads(line) for line in (ROOT / "results" / "auto-eta" / "picture.jsonl").read_text().splitlines()]
    figure, axes = new_figure(7, 4.2, 3, 1, sharex=True)
    titles = {"value": "Values travel, then settle", "slope": "The slope sees it", "eta": "η follows"}
    labels = {"value": "mean V(s)", "slope": "slope", "eta": "η"}
    found = [line for line in lines if line["kind"] == "train"]
    for ax, (name, colour) in zip(axes, {"value": BLUE, "slope": GREY, "eta": ORANGE}.items(), strict=True):
        ax.plot([line["step"] for line in found], [line[name] for line in found], color=colour)
        ax.set_title(titles[name], loc="left")
        ax.set_ylabel(labels[name])
    axes[-1].set_xlabel("env steps")
    return figure


def tasks(study: Study) -> dict[Task, list[Series]]:
    """The constant etas of each task, and auto, with eta = 0 and enough seeds, in the variant that eta = 0 has."""
    found: dict[Task, list[Series]] = {}
    everything = [row.series for row in study.rows]
    for series in everything:
        baseline = baseline_of(series, everything)
        another_rule = isinstance(series.eta, str) and series.eta != "auto"
        if baseline is None or another_rule or baseline.variant != series.variant:
            continue
        if len(set(series.seeds) & set(baseline.seeds)) >= FEWEST_SEEDS:
            found.setdefault(series.task, []).append(series)
    return {task: members for task, members in found.items() if len(members) > 1}


def results(by_task: dict[Task, list[Series]], everything: list[Series]) -> Figure:
    """Gain over the baseline in the score over training, the task with the largest first; inconclusive ones in grey."""
    gains = {task: task_gains(task, members, everything) for task, members in by_task.items()}
    ranked = sorted(gains, key=lambda task: max(gain.low for gain in gains[task].values()), reverse=True)
    count = sum(map(len, gains.values()))
    figure, ax = new_figure(7.6, 0.9 + 0.2 * count + 0.12 * len(ranked))
    colours = colours_of(by_task)
    at, ticks = 0.0, {}
    for task in ranked:
        top = at
        ax.axhline(at - 0.75, color=GREY, linewidth=0.4)
        for eta, gain in gains[task].items():
            colour = colours[eta] if gain.low > 0 or gain.high < 0 else "#C0C0C0"
            ax.plot([gain.low, gain.high], [at, at], color=colour, linewidth=2.2)
            ax.plot(gain.estimate, at, "o", color=colour, markersize=5)
            ticks[at] = f"η = {eta_label(eta)}"
            at += 1
        where = {"transform": ax.get_yaxis_transform(), "ha": "right", "va": "center", "fontsize": 8}
        ax.text(-0.14, (top + at - 1) / 2, f"{task.algorithm.upper()}\n{task.env}", **where)
        at += 0.5
    ax.axvline(0, color=BLACK, linewidth=0.9)
    ax.set_yticks(list(ticks), ticks.values(), fontsize=7.5)
    ax.set_ylim(at - 0.5, -0.9)
    ax.grid(visible=False, axis="y")
    ax.xaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_xlabel("gain over training (0%: baseline; 100%: from random play to the reference score)")
    return figure


def task_gains(task: Task, members: list[Series], everything: list[Series]) -> dict[float | str, Interval]:
    """The gain of each eta over the baseline, in units of the task's reference range."""
    baseline = next(series for series in members if series.eta == 0)
    reference = task_reference(task, everything)
    assert reference is not None, f"{task} has no scale"
    shaped = [series for series in members if series is not baseline]
    return {series.eta: relative_gain(series, baseline, reference.span) for series in shaped}


def colours_of(by_task: dict[Task, list[Series]]) -> dict[float | str, Any]:
    """One for each eta of any task."""
    return eta_colours(list(dict.fromkeys(series.eta for members in by_task.values() for series in members)))


def agent(task: Task) -> str:
    """Name the agent, as in titles."""
    return task.algorithm.upper()


def is_tuned(task: Task) -> bool:
    """The zoo's settings are."""
    return "zoo" in task.sweep.parts


def relative_gain(series: Series, baseline: Series, scale: float) -> Interval:
    """(mean - baseline's mean) / the task's reference range, over shared seeds."""
    x, y = paired(series, baseline)
    gain = bootstrap(lambda a, b: mean(a) - mean(b), x, y, seed=0)
    return Interval(gain.estimate / scale, gain.low / scale, gain.high / scale)


def paired(series: Series, baseline: Series) -> list[np.ndarray]:
    """Mean score over training of both on the seeds that they share: (seeds, 1) each."""
    return [scores[:, None] for scores in on_shared_seeds(area, series, baseline)]


def choosing_eta(by_task: dict[Task, list[Series]]) -> Figure:
    """Mean score over training against eta, a panel for each env."""
    columns = 3
    rows = -(-len(by_task) // columns)
    figure, axes = new_figure(7, 2.1 * rows, rows, columns, squeeze=False)
    for ax in list(axes.flat)[len(by_task) :]:
        ax.set_visible(False)
    colours = colours_of(by_task)
    for ax, (task, members) in zip(axes.flat, by_task.items(), strict=False):
        for at, series in enumerate(members):
            score = bootstrap(mean, series.area[:, None], seed=0)
            ax.plot([at, at], [score.low, score.high], color=colours[series.eta], linewidth=2)
            ax.plot(at, score.estimate, "o", color=colours[series.eta], markersize=5)
            if series.eta == 0:
                ax.axhline(float(score.estimate), color=GREY, linestyle=":", linewidth=1)
        ax.set_xticks(range(len(members)), [eta_label(series.eta) for series in members])
        ax.set_xlabel("η")
        ax.set_title(f"{agent(task)} on {task.env}", fontsize=8.5)
        ax.margins(x=0.15)
    for ax in axes[:, 0]:
        ax.set_ylabel("score over training")
    return figure


# ---- the pages, as a browser shows them


def screenshots() -> None:
    """The report of the Pendulum runs and the lab, light and dark. Needs chromium and chromedriver."""
    from selenium import webdriver

    with tempfile.TemporaryDirectory() as folder:
        study = read_study([ROOT / "results" / "pendulum" / "runs"], title="TD3 on Pendulum")
        report = write_report(replace(study, figures=()), Path(folder) / "report.html").as_uri()
        name_it = f"document.getElementById('command').textContent = '{COMMAND}'"
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        flags = (
            "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --disable-background-networking --no-first-run"
        )
        for flag in [*flags.split(), f"--user-data-dir={folder}/profile"]:
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        for theme in ("light", "dark"):
            shoot(browser, report, f"report-{theme}", theme, 1200, 1000, name_it)
            shoot(browser, PAGE.as_uri(), f"lab-{theme}", theme, 1240, 1120, "lab.finish()")
        shoot(browser, PAGE.as_uri(), "lab-phone", "light", 390, 1000, "lab.finish()")
        browser.quit()


def shoot(browser: Any, address: str, name: str, theme: str, width: int, height: int, script: str) -> None:
    """One picture of a page, a second after it has been opened and a script has been run."""
    size = {"width": width, "height": height, "deviceScaleFactor": 2 if width < 600 else 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(address)
    browser.execute_script(script)
    time.sleep(1)
    picture = browser.execute_cdp_cmd("Page.captureScreenshot", {})
    (IMAGES / f"{name}.png").write_bytes(base64.b64decode(picture["data"]))


if __name__ == "__main__":
    main()
