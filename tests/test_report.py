"""The report page, in a real browser."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browsing import chromium
from bsrs.cli import main
from bsrs.errors import BadInput
from bsrs.report import read_study, write_report
from bsrs.report.plots import interval, numbers, tasks
from bsrs.stats import Interval
from experiments.claims import Claim, write_claims
from run_folders import config, write_run, write_sweep


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two envs, a sweep of each, and all that can go wrong with a run."""
    root = tmp_path_factory.mktemp("store")
    write_sweep(root, ["CartPole-v1"], [0.0, 0.5, 2.0], seeds=3)
    write_sweep(root, ["Pendulum-v1"], [-0.5, 0.0, 1.0], seeds=2, algorithm="td3")
    write_run(root, config("CartPole-v1", 10.0, 0), [20.0, 11.0], "diverged", "mean value is 3e+06, beyond 1e+04")
    write_run(root, config("CartPole-v1", 10.0, 1), [20.0], "failed", "EnvFault: reward </script> is nan")
    write_run(root, config("CartPole-v1", 10.0, 2), [20.0], None)
    broken = write_run(root, config("CartPole-v1", 10.0, 3), [20.0], None)
    (broken / "config.json").write_text("{")
    (root / "one-dot.png").write_bytes(_one_dot())
    (next(root.glob("*seed0*")) / "of-a-run.png").write_bytes(_one_dot())
    write_claims(root / "claims.json", [Claim("it helps", "a bit", "[0, 1]", "inconclusive")])
    return root


@pytest.fixture(scope="module")
def page(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(read_study([store], title="Two envs"), tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from chromium(tmp_path_factory.mktemp("profile"))


@pytest.fixture
def opened(browser: Any, page: Path) -> Any:
    """The page, opened from disk and drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(page.as_uri())
    WebDriverWait(browser, 60).until(lambda b: b.execute_script("return !!document.querySelector('#curves .main-svg')"))
    return browser


def _names(browser: Any) -> list[str]:
    """The series in the plot, as plotly has them."""
    return browser.execute_script("return [...new Set(document.getElementById('curves').data.map(t => t.name))]")


def _click(browser: Any, selector: str) -> None:
    browser.find_element("css selector", selector).click()


def _wait_for(browser: Any, selector: str) -> Any:
    """The element, which the page may draw a moment after the click."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 30).until(lambda b: b.find_element("css selector", selector))


def _choose(browser: Any, select: str, text: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(browser.find_element("id", select)).select_by_visible_text(text)


def test_it_loads_without_a_word_on_the_console_and_asks_nothing_of_the_net(opened: Any) -> None:
    assert opened.get_log("browser") == []
    fetched = opened.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in fetched if not name.startswith("data:")] == []
    assert opened.title == "Two envs · bsrs report"
    assert _names(opened) == ["η = 0", "η = 0.5", "η = 2", "η = 10"]


def test_a_toggle_changes_the_plot_and_back(opened: Any) -> None:
    size = opened.get_window_size()
    opened.set_window_size(size["width"], 2400)  # a screenshot of an element shows what is in sight
    before = opened.find_element("id", "curves").screenshot_as_png
    _click(opened, "#chips .chip:nth-child(2)")
    assert _names(opened) == ["η = 0", "η = 2", "η = 10"]
    assert opened.find_element("css selector", "#chips .chip:nth-child(2)").get_attribute("aria-pressed") == "false"
    assert opened.find_element("id", "curves").screenshot_as_png != before
    opened.set_window_size(size["width"], size["height"])
    _click(opened, "#none")
    assert _names(opened) == []
    _click(opened, "#all")
    assert _names(opened) == ["η = 0", "η = 0.5", "η = 2", "η = 10"]


def test_env_and_quantity_can_be_switched(opened: Any) -> None:
    _choose(opened, "task", "Pendulum-v1 · td3")
    assert _names(opened) == ["η = −0.5", "η = 0", "η = 1"]
    _choose(opened, "metric", "mean V(s)")
    drawn = opened.execute_script("return document.getElementById('curves').data[0].y")
    assert drawn == [float(i) for i in range(1, 11)]
    lines = opened.execute_script("return document.getElementById('curves').data.length")
    _click(opened, "#each")
    assert opened.execute_script("return document.getElementById('curves').data.length") == lines + 3 * 2


def test_the_probability_of_improvement_is_drawn_with_its_intervals(opened: Any) -> None:
    _choose(opened, "comparison", "probability of beating η = 0")
    drawn = opened.execute_script("return document.getElementById('sensitivity').data.map(t => [t.name, t.y[0]])")
    assert [name for name, _ in drawn] == ["η = 0.5", "η = 2", "η = 10"]
    assert all(0 <= value <= 1 for _, value in drawn)


def test_axes_can_be_logarithmic_and_in_minutes(opened: Any) -> None:
    steps = opened.execute_script("return document.getElementById('curves').data.at(-1).x")
    _choose(opened, "axis", "training time")
    minutes = opened.execute_script("return document.getElementById('curves').data.at(-1).x")
    # one run of eta = 10 ended: 2,000 steps in 12.5 seconds
    assert minutes == pytest.approx([step * 12.5 / 2_000 / 60 for step in steps])
    _click(opened, "#log-x")
    _click(opened, "#log-y")
    types = (
        "const l = document.getElementById('curves').layout; return [l.xaxis.type, l.yaxis.type, l.xaxis.title.text]"
    )
    assert opened.execute_script(types) == ["log", "log", "minutes of training"]


def test_smoothing_is_a_running_mean(opened: Any) -> None:
    _choose(opened, "metric", "mean V(s)")
    opened.execute_script(
        "const s = document.getElementById('smoothing'); s.value = 1; s.dispatchEvent(new Event('input'))"
    )
    drawn = opened.execute_script("return document.getElementById('curves').data[0].y")
    assert drawn == [1.5, *[float(i) for i in range(2, 10)], 9.5]  # of 1, 2, ..., 10


def test_tables_sort_by_their_headings_up_down_and_back(opened: Any) -> None:
    def settings() -> list[str]:
        script = "return [...document.querySelectorAll('#statistics-table tbody:first-of-type td:first-child')]"
        return opened.execute_script(f"{script}.map(cell => cell.textContent)")

    runs = "//table[@id='statistics-table']//th/button[text()='final score']"
    given = settings()
    orders = []
    for _ in range(3):
        opened.find_element("xpath", runs).click()
        orders.append(settings())
    assert orders[0] == orders[1][::-1]
    assert sorted(orders[0]) == sorted(given)
    assert orders[0] != given
    assert orders[2] == given
    _click(opened, "#run-table th[data-key=seed] button")
    seeds = "return [...document.querySelectorAll('#run-table tbody tr')].map(row => row.cells[3].textContent)"
    assert opened.execute_script(seeds) == sorted(opened.execute_script(seeds), key=int)


def test_keyboard_focus_stays_where_it_was(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    chip = opened.find_element("css selector", "#chips .chip:nth-child(2)")
    for _ in range(2):
        chip.send_keys(Keys.SPACE)
        assert opened.switch_to.active_element == chip
    heading = opened.find_element("css selector", "#run-table th[data-key=eta] button")
    heading.send_keys(Keys.ENTER)
    assert opened.switch_to.active_element == heading


def test_figures_and_tables_can_be_downloaded(opened: Any, tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    opened.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    _click(opened, "#curves-png")
    for button in ("#curves-csv", "#statistics-csv", "#runs-csv"):
        _click(opened, button)
    WebDriverWait(opened, 60).until(lambda _: len([*tmp_path.glob("*.csv"), *tmp_path.glob("*.png")]) == 4)
    assert next(tmp_path.glob("*.png")).read_bytes().startswith(b"\x89PNG")
    curves = list(csv.DictReader(next(tmp_path.glob("*score.csv")).open()))
    assert [row["env steps"] for row in curves if row["setting"] == "η = 0.5"] == [str(i * 1000) for i in range(1, 11)]
    assert curves[0]["run 3"] != ""
    runs = list(csv.DictReader(next(tmp_path.glob("*runs.csv")).open()))
    assert len(runs) == 18
    assert {row["learning_rate"] for row in runs if row["algorithm"] == "dqn"} == {"0.0005"}
    statistics = list(csv.DictReader(next(tmp_path.glob("*statistics.csv")).open()))
    assert len(statistics) == 4 + 3


def test_hovering_tells_the_score(opened: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    point = opened.find_element("css selector", "#sensitivity .point")
    ActionChains(opened).move_to_element(point).perform()
    WebDriverWait(opened, 20).until(lambda b: b.find_elements("css selector", "#sensitivity .hovertext"))


def test_light_and_dark(opened: Any) -> None:
    def ground() -> str:
        return opened.execute_script("return getComputedStyle(document.body).backgroundColor")

    opened.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    opened.refresh()
    assert ground() == "rgb(20, 23, 26)"
    _click(opened, "#theme")
    assert ground() == "rgb(251, 251, 250)"
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_runs_that_went_wrong_are_shown_first_and_can_be_found(opened: Any) -> None:
    rows = opened.find_elements("css selector", "#run-table tbody tr")
    assert len(rows) == 9 + 6 + 3
    assert ["failed" in rows[0].text, "diverged" in rows[1].text, "interrupted" in rows[2].text] == [True] * 3
    assert "EnvFault: reward </script> is nan" in rows[0].text
    opened.find_element("id", "find").send_keys("diverged cartpole")
    assert len(opened.find_elements("css selector", "#run-table tbody tr")) == 1
    _click(opened, "#run-table details summary")
    assert '"learning_rate": 0.0005' in _wait_for(opened, "#run-table pre").text
    assert "config.json is damaged" in opened.find_element("css selector", ".warning").text


def test_the_command_can_be_copied(opened: Any, store: Path, page: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    assert opened.find_element("id", "command").text == f"bsrs report {store} -o {page}"
    _click(opened, "#copy")
    WebDriverWait(opened, 10).until(lambda b: b.find_element("id", "copy").text == "copied")


def test_pictures_and_claims_are_on_the_page(opened: Any) -> None:
    loaded = "return [...document.querySelectorAll('figure img')].map(img => img.complete && img.naturalWidth > 0)"
    assert opened.execute_script(loaded) == [True]
    assert "inconclusive" in opened.find_element("xpath", "//h2[@id='claims']/..").text


# ---- without a browser


def test_the_command_line_writes_the_page(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", str(store), "-o", str(tmp_path / "deep" / "page.html")])
    assert str(tmp_path / "deep" / "page.html") in capsys.readouterr().out
    html = (tmp_path / "deep" / "page.html").read_text()
    assert 'src="http' not in html
    assert '<link rel="stylesheet"' not in html


def test_a_folder_without_runs_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no runs"):
        write_report(read_study([tmp_path]), tmp_path / "page.html")


def test_damaged_claims_are_told(tmp_path: Path) -> None:
    write_run(tmp_path, config("CartPole-v1", 0.0, 0), [1.0])
    (tmp_path / "claims.json").write_text("[]")
    (tmp_path / "no-picture.png").write_text("")
    os.mkfifo(tmp_path / "pipe.png")
    study = read_study([tmp_path])
    assert {path.name for path in study.unreadable} == {"claims.json", "no-picture.png", "pipe.png"}
    assert (len(study.runs), study.claims, study.figures) == (1, [], [])
    assert "claims.json is damaged" in write_report(study, tmp_path / "page.html").read_text()


def test_a_store_where_nothing_has_ended_still_has_a_page(tmp_path: Path) -> None:
    write_run(tmp_path, config("CartPole-v1", 0.0, 0), [1.0], None)
    assert "No run has ended yet" in write_report(read_study([tmp_path]), tmp_path / "page.html").read_text()


def test_sweeps_are_overlaid_by_the_fields_that_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, double in (("plain", False), ("double", True)):
        write_sweep(tmp_path / folder, ["CartPole-v1"], [0.0, 1.0], seeds=3, double=double)
        write_sweep(tmp_path / folder, ["CartPole-v1"], [2.0], seeds=2, double=double, gamma=0.9)
    folders = [tmp_path / "plain", tmp_path / "double"]
    apart = read_study(folders)
    assert len({row.series.task for row in apart.rows}) == 2
    together = read_study(folders, group_by=["double"])
    assert len({row.series.task for row in together.rows}) == 1
    labels = [(row.series.variant, row.series.eta, len(row.series.runs)) for row in together.rows]
    assert labels == [(f"double={d}", eta, 2 if eta == 2 else 3) for d in (False, True) for eta in (0.0, 1.0, 2.0)]
    assert read_study([folders[0]] * 2, group_by=["double"]).rows[0].series.seeds == (0, 1, 2)  # each run counts once
    main(["report", *map(str, folders), "--group-by", "double,eta", "-o", str(tmp_path / "page.html")])
    assert "double=True" in (tmp_path / "page.html").read_text()
    with pytest.raises(SystemExit, match="2"):
        main(["report", *map(str, folders), "--group-by", "doubel", "-o", str(tmp_path / "page.html")])
    assert "did you mean double" in capsys.readouterr().err


def test_runs_of_different_lengths_are_not_overlaid(tmp_path: Path) -> None:
    for seed, steps in enumerate((5_000, 10_000)):
        write_run(tmp_path, config("CartPole-v1", 0.0, seed, steps=steps), [1.0] * (steps // 1_000))
    with pytest.raises(BadInput, match="differ in steps"):
        read_study([tmp_path], group_by=["double"])


def test_a_link_out_of_the_folder_is_not_embedded(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", config("CartPole-v1", 0.0, 0), [1.0])
    (tmp_path / "private.png").write_bytes(_one_dot())
    (tmp_path / "runs" / "innocent.png").symlink_to(tmp_path / "private.png")
    assert read_study([tmp_path / "runs"]).figures == []


def test_an_interval_without_room_is_not_printed() -> None:
    assert interval(Interval(np.array(1.0), np.array(1.0), np.array(1.0))) == [1.0, None, None]
    assert interval(Interval(np.array(1.0), np.array(0.5), np.array(np.inf))) == [1.0, 0.5, None]


def test_all_atari_games_are_a_task_of_their_own(tmp_path: Path) -> None:
    write_sweep(tmp_path, ["PongNoFrameskip-v4", "BoxingNoFrameskip-v4"], [0.0, 2.0], seeds=2)
    found = tasks(read_study([tmp_path]).rows)
    assert [task["name"] for task in found][-1] == "all 2 Atari games, median"
    assert [series["label"] for series in found[-1]["series"]] == ["η = 0", "η = 2"]
    shares = found[-1]["series"][0]["metrics"]["profile"]["middle"]
    assert shares == sorted(shares, reverse=True)
    html = write_report(read_study([tmp_path]), tmp_path / "page.html").read_text()
    assert "all 2 Atari games, median" in html


def test_numbers_for_json() -> None:
    assert numbers([1.0, float("nan"), float("-inf"), 123456.789]) == [1.0, None, None, 123460.0]


def _one_dot() -> bytes:
    import io

    from matplotlib.figure import Figure

    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0], [0], "o")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
