"""Draw the site's figures anew: `python docs/figures.py`. Nothing is trained; the runs are those in results/."""

from __future__ import annotations

import base64
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
from bsrs.reproduce.anatomy import draw_anatomy
from bsrs.reproduce.claims import area
from bsrs.stats import Interval, bootstrap, mean
from bsrs.stats.records import Series, Task
from bsrs.stats.summary import baseline_of, floor_of, on_shared_seeds
from bsrs.tabular import MDP, GridMap, bellman, expected_next, grid_mdp, solve, state_value
from bsrs.tabular.grids import MOVES

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
GAMMA, SWEEPS = 0.8, 8
COMMAND = "bsrs report results/pendulum -o report.html"
FEWEST_SEEDS = 5


def main() -> None:
    """All of them."""
    folders = [path for path in sorted((ROOT / "results").iterdir()) if next(path.glob("**/config.json"), None)]
    study = read_study([folder for folder in folders if folder.name != "anatomy"])
    anatomy = read_study([ROOT / "results" / "anatomy"])
    with project_style():
        save(idea(), "idea")
        save(adaptive_eta(), "adaptive-eta")
        by_task, everything = tasks(study), [row.series for row in study.rows]
        for name, of_zoo in {"results-tuned": True, "results": False}.items():
            save(results({task: by_task[task] for task in by_task if is_tuned(task) is of_zoo}, everything), name)
        save(choosing_eta(by_task), "choosing-eta")
        for name, figure in draw_anatomy([row.series for row in anatomy.rows]).items():
            save(figure, name)
    command("tabular solve --map Taxi-v4 --gamma 0.9 --plot", str(IMAGES / "values.png"))
    command("tabular theory --map FrozenLake-v1 --gamma 0.9 --plot", str(IMAGES / "eigenvalues.png"))
    screenshots()


def command(words: str, *more: str) -> None:
    """One of the package's own."""
    cli([*words.split(), *more])


def save(figure: Figure, name: str) -> None:
    figure.savefig(IMAGES / f"{name}.png", dpi=150, metadata={"Software": None})


def idea() -> Figure:
    """Reward, value estimate and shaping term on the paper's gridworld, a few sweeps into value iteration."""
    grid = GridMap.named("paper")
    mdp = grid_mdp(grid)
    q = np.zeros((mdp.n_states, mdp.n_actions))
    for _ in range(SWEEPS):
        q = bellman(mdp, GAMMA, q)
    value = state_value(q)
    term = GAMMA * expected_next(mdp, value) - value[:, None]  # (S, A), eta = 1
    figure, axes = new_figure(9, 3.3, 1, 3)
    reward = bellman(mdp, GAMMA, 0 * q)  # with nothing known yet, a sweep gives the reward
    _cells(axes[0], grid, reward, "the reward r")
    _cells(axes[1], grid, np.repeat(value[:, None], 4, axis=1), f"the estimate V after {SWEEPS} sweeps")
    _cells(axes[2], grid, term, "the term γV(s′) − V(s) of each move")
    for (row, column), at in zip(np.argwhere(grid.is_state), value, strict=True):
        axes[1].text(column, row, f"{at:.2f}".lstrip("0") if at else "0", ha="center", va="center", fontsize=6.5)
    return figure


def _cells(ax: Axes, grid: GridMap, numbers: np.ndarray, title: str) -> None:
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
    shape = {"cmap": "RdBu", "edgecolors": "face", "linewidths": 0.2}
    drawn = PolyCollection(triangles, array=np.array(colours), **shape)
    drawn.set_clim(-1.3 * largest, 1.3 * largest)
    ax.add_collection(drawn)
    height, width = grid.cells.shape
    ax.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal", title=title, facecolor="#8A8A8A")
    for letter in ("S", "G"):
        for row, column in np.argwhere(grid.cells == letter):
            ax.text(column + 0.32, row - 0.32, letter, ha="center", va="center", fontsize=7, fontweight="bold")
    ax.set_xticks(np.arange(width + 1) - 0.5, labels=[])
    ax.set_yticks(np.arange(height + 1) - 0.5, labels=[])
    ax.tick_params(length=0)


def adaptive_eta() -> Figure:
    """Residuals of plain value iteration, a constant eta, and two that are chosen in every step."""
    figure, axes = new_figure(7, 2.8, 1, 2, sharey=True)
    mdps = {"the paper's gridworld": grid_mdp("paper"), "a random MDP of 200 states": MDP.garnet(200, 4, 5, seed=0)}
    rules = {"η = 0": 0.0, "η = 0.2": 0.2, "η by Aitken": "aitken", "η by Anderson": "anderson"}
    for ax, (title, mdp) in zip(axes, mdps.items(), strict=True):
        for (name, eta), colour in zip(rules.items(), (BLACK, BLUE, ORANGE, GREEN), strict=True):
            solution = solve(mdp, 0.99, eta=eta)
            at = 1 + np.arange(len(solution.residuals))
            ax.plot(at, solution.residuals, color=colour, label=f"{name}: {solution.applications:,}")
        ax.set(yscale="log", ylim=(1e-6, None), xlabel="applications of the operator", title=title)
        ax.legend(fontsize=7)
    axes[0].set_ylabel("residual")
    return figure


# ---- from the runs in results/


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
    """Gain over eta = 0 in the mean score over training, by env and eta."""
    count = sum(len(members) - 1 for members in by_task.values())
    figure, ax = new_figure(7.2, 0.9 + 0.2 * count + 0.12 * len(by_task))
    at, ticks = 0.0, {}
    colours = colours_of(by_task)
    for task, members in by_task.items():
        top = at
        baseline = next(series for series in members if series.eta == 0)
        floor = floor_of(task, everything)
        ax.axhline(at - 0.75, color=GREY, linewidth=0.4)
        for series in members:
            if series is baseline:
                continue
            gain = relative_gain(series, baseline, floor)
            ax.plot([gain.low, gain.high], [at, at], color=colours[series.eta], linewidth=2.2)
            ax.plot(gain.estimate, at, "o", color=colours[series.eta], markersize=5)
            ticks[at] = f"η = {eta_label(series.eta)}"
            at += 1
        seeds, steps = len(paired(members[-1], baseline)[0]), members[-1].config.steps
        about = f"{task.env}\n{agent(task)}, {seeds} seeds, {steps // 1000:,}k steps"
        where = {"transform": ax.get_yaxis_transform(), "ha": "right", "va": "center", "fontsize": 8}
        ax.text(-0.12, (top + at - 1) / 2, about, **where)
        at += 0.5
    ax.axvline(0, color=BLACK, linewidth=0.9)
    ax.set_yticks(list(ticks), ticks.values(), fontsize=7.5)
    ax.set_ylim(at - 0.5, -0.9)
    ax.grid(visible=False, axis="y")
    ax.set_xscale("symlog", linthresh=1)  # on MountainCar eta = 0 gains almost nothing, so gains are many times that
    low, high = ax.get_xlim()
    ax.set_xticks([tick for tick in (-1, -0.5, 0, 0.5, 1, 10) if low <= tick <= high])
    ax.xaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_xlabel("gain in the mean score over training, relative to what η = 0 gained")
    return figure


def colours_of(by_task: dict[Task, list[Series]]) -> dict[float | str, Any]:
    """One for each eta of any task."""
    return eta_colours(list(dict.fromkeys(series.eta for members in by_task.values() for series in members)))


def agent(task: Task) -> str:
    """What stands beside its env."""
    return "tuned " * is_tuned(task) + task.algorithm.upper()


def is_tuned(task: Task) -> bool:
    """The zoo's settings are."""
    return "zoo" in task.sweep.parts


def relative_gain(series: Series, baseline: Series, floor: float) -> Interval:
    """(mean - baseline's mean) / (baseline's mean - floor) over shared seeds, the divisor taken as known."""
    x, y = paired(series, baseline)
    gain = bootstrap(lambda a, b: mean(a) - mean(b), x, y, seed=0)
    scale = abs(float(y.mean()) - floor)
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
        steps = f"{members[0].config.steps // 1000}k"
        ax.set_title(f"{task.env.removeprefix('MinAtar/')}, {agent(task)}, {steps}", fontsize=7.5)
        ax.margins(x=0.15)
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
