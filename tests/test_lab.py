"""The lab in a real browser: its numbers are the package's, and drawing, sharing and exporting work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from browsing import chromium
from bsrs.cli import main
from bsrs.cli.tabular import PAGE
from bsrs.tabular import MDP, GridMap, grid_mdp, solve
from bsrs.tabular.grids import MAPS
from bsrs.tabular.theory import empirical_limit, optimal_chain, proven_range, random_inits, spectral_limit

ETAS = (-0.2, 0.1, 0.23)
# map, gamma, slip, goal, first guess
CASES = {
    "paper": ("paper", 0.8, 0.0, "loop", "zero"),
    "two rooms, slippery, ends": ("two-rooms", 0.9, 0.1, "terminate", "zero"),
    "corridor, resets": ("corridor", 0.8, 0.3, "reset", "zero"),
    "four rooms, random guess": ("four-rooms", 0.9, 0.0, "loop", "random"),
    "cliff": ("cliff", 0.8, 0.1, "terminate", "zero"),
    "rewards and a pit": ("SF3W FcFW FFFG WPFF", 0.9, 0.05, "loop", "random"),
    "open, slippery": ("8x8", 0.7, 0.2, "loop", "zero"),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from chromium(tmp_path_factory.mktemp("profile"))


@pytest.fixture
def lab(browser: Any) -> Callable[..., Any]:
    """Open the page with these settings in its address."""

    def open_page(**settings: Any) -> Any:
        browser.get("about:blank")
        browser.get(PAGE.as_uri() + "#" + "&".join(f"{key}={value}" for key, value in settings.items()))
        return browser

    return open_page


def _wait(browser: Any, script: str) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 60).until(lambda b: b.execute_script(f"return {script}"))


def _rows(name: str) -> str:
    return ".".join("".join(row) for row in GridMap.named(name).cells)


def _map(browser: Any) -> str:
    return browser.execute_script("return lab.state.map")


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_the_packages(lab: Any, case: str) -> None:
    name, gamma, slip, goal, start = CASES[case]
    mdp = grid_mdp(name, slip=slip, goal=goal)  # type: ignore[arg-type]
    init = random_inits(mdp, range(1))[0] if start == "random" else None
    plain = solve(mdp, gamma, init=init)
    anderson = solve(mdp, gamma, eta="anderson", init=init)
    for eta in ETAS:
        page = lab(map=_rows(name), gamma=gamma, slip=slip, goal=goal, start=start, eta=eta)
        shaped = solve(mdp, gamma, eta=eta, init=init, max_steps=10 * max(100, plain.applications))
        raced = page.execute_script("return lab.finish()")
        for drawn, exact in zip(raced, (plain, shaped, anderson), strict=True):
            assert (drawn["outcome"], drawn["steps"]) == (exact.outcome, exact.applications)
            np.testing.assert_allclose(drawn["value"], exact.value, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(drawn["optimal"], exact.optimal_value, rtol=1e-9, atol=1e-9)
    _check_limits(page, mdp, gamma)


def _check_limits(page: Any, mdp: MDP, gamma: float) -> None:
    _wait(page, "lab.limits().empirical !== undefined")
    found = page.execute_script("return lab.limits()")
    assert found["proven"] == pytest.approx(proven_range(gamma)[1])
    assert found["spectral"] == pytest.approx(spectral_limit(optimal_chain(mdp, gamma), gamma), rel=1e-9)
    assert found["empirical"] == pytest.approx(empirical_limit(mdp, gamma), rel=1e-12)


def test_it_starts_by_itself_without_a_word_on_the_console_and_asks_nothing_of_the_net(lab: Any) -> None:
    page = lab()
    _wait(page, "lab.results()[0].steps > 3")
    assert page.get_log("browser") == []
    fetched = page.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert {name.split("/")[-1] for name in fetched if not name.startswith(("blob:", "data:"))} <= {
        "lab.css", "solver.js", "draw.js", "lab.js",
    }  # fmt: skip
    assert all(name.startswith(("file:", "blob:", "data:")) for name in fetched)


def test_the_examples_are_maps_of_the_package(lab: Any) -> None:
    examples = lab().execute_script("return lab.examples")
    for name in ("paper", "four-rooms", "cliff"):
        assert examples[name]["map"] == MAPS[name].replace(" ", ".")


def _cell(page: Any, lane: int, row: int, column: int) -> tuple[Any, int, int]:
    """A board, and where a cell lies from its middle."""
    board = page.find_elements("css selector", ".board")[lane]
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", board)
    height, width = len(_map(page).split(".")), len(_map(page).split(".")[0])
    side = board.size["width"] / width
    return board, int((column + 0.5 - width / 2) * side), int((row + 0.5 - height / 2) * side)


def test_drawing_by_mouse_changes_the_map_the_race_and_the_address(lab: Any) -> None:
    from selenium.webdriver import ActionChains

    page = lab(map="SFFF.FFFF.FFFG", eta=0.1)
    before = page.execute_script("return lab.finish()")
    board, x, y = _cell(page, 0, 0, 1)
    _, _, below = _cell(page, 0, 1, 1)
    ActionChains(page).move_to_element_with_offset(board, x, y).click_and_hold().move_to_element_with_offset(
        board, x, below
    ).release().perform()
    assert _map(page) == "SWFF.FWFF.FFFG"
    assert page.execute_script("return lab.finish()")[0]["value"] != before[0]["value"]
    _wait(page, "location.hash.includes('SWFF.FWFF.FFFG')")
    assert "column 2</b> is a wall" in page.find_element("id", "sentence").get_attribute("innerHTML")
    # the link is the experiment
    link = page.execute_script("return location.href")
    page.get("about:blank")
    page.get(link)
    assert page.execute_script("return [lab.state.map, lab.state.eta]") == ["SWFF.FWFF.FFFG", 0.1]


def test_drawing_by_keyboard(lab: Any) -> None:
    page = lab(map="SFF.FFG")
    board = page.find_element("css selector", ".board")
    board.send_keys("\ue014", "\ue014", "\ue015", "p", "\ue007")  # right: the corner; right, down; a pit; Enter
    assert _map(page) == "SFF.FPG"
    assert "Row 2, column 2, baseline:" in page.find_element("id", "sentence").text
    page.find_element("css selector", "body").send_keys("r")
    assert [racer["steps"] for racer in page.execute_script("return lab.results()")] == [0, 0, 0]
    page.find_element("css selector", "body").send_keys(".")
    assert [racer["steps"] for racer in page.execute_script("return lab.results()")] == [1, 1, 1]


def test_drawing_by_touch_on_a_phone(lab: Any) -> None:
    page = lab(map="SFF.FFF.FFG")
    _wait(page, "document.querySelectorAll('#marks span').length == 3")  # placed on a wide screen, to be placed anew
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    )
    try:
        page.execute_script("document.querySelector('#tools [data-key=W]').click()")
        _wait(page, "document.documentElement.scrollWidth <= 390")  # the page is laid out anew
        board = page.find_element("css selector", ".lane.shown .board")
        page.execute_script("arguments[0].scrollIntoView({block: 'center'})", board)
        box = page.execute_script("return arguments[0].getBoundingClientRect()", board)
        spots = [{"x": box["x"] + box["width"] * (i + 0.5) / 3, "y": box["y"] + box["height"] / 2} for i in (0, 1)]
        for kind, touches in (("touchStart", spots[:1]), ("touchMove", spots[1:]), ("touchEnd", [])):
            page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})
        assert _wait(page, "lab.state.map === 'SFF.WWF.FFG'")
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_exports_repeat_the_experiment(lab: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = lab(map="SFWF.FF3F.WFPG", gamma=0.9, slip=0.1, goal="terminate", start="random", eta=0.07)
    steps = [racer["steps"] for racer in page.execute_script("return lab.finish()")]
    page.find_element("id", "export-python").click()
    exec(page.find_element("id", "dialog-text").get_property("value"), {})
    printed = [line.split()[:3] for line in capsys.readouterr().out.splitlines() if "converged" in line]
    assert printed == [[eta, "converged", str(n)] for eta, n in zip(("0", "0.07", "anderson"), steps, strict=True)]
    page.execute_script("document.getElementById('dialog').close()")
    page.find_element("id", "export-map").click()
    text = page.find_element("id", "dialog-text").get_property("value")
    (tmp_path / "maze.txt").write_text(text)
    assert (GridMap.named(str(tmp_path / "maze.txt")).cells == GridMap.parse("SFWF FF3F WFPG").cells).all()
    # and back: a map that is typed in, first with a mistake
    page.execute_script("document.getElementById('dialog-text').value = 'SFG FQ'")
    page.find_element("id", "dialog-use").click()
    assert "unknown letter" in page.find_element("id", "dialog-problem").text
    page.execute_script("document.getElementById('dialog-text').value = 'SFG FFF'")
    page.find_element("id", "dialog-use").click()
    assert _map(page) == "SFG.FFF"


def test_a_broken_address_is_said_to_be_broken_and_eta_too_large_diverges(lab: Any) -> None:
    page = lab(map="SFX.FFG")
    assert "unknown letter" in page.find_element("id", "toast").text
    assert _map(page) == _rows("paper")
    page = lab(map="SFFF.FFFF.FFFG", eta=1.4)
    assert page.execute_script("return lab.finish()[1].outcome") == "diverged"
    _wait(page, "document.getElementById('verdict').textContent.startsWith('Too large')")
    _wait(page, "document.getElementById('sentence').textContent.includes('diverged')")


def test_dark_and_light(lab: Any) -> None:
    page = lab()
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = page.execute_script(colour)
    page.find_element("id", "theme").click()
    assert page.execute_script(colour) != light


def test_the_command_prints_where_the_page_is(capsys: pytest.CaptureFixture[str]) -> None:
    main(["lab", "--path"])
    assert capsys.readouterr().out.strip() == str(PAGE)
    assert all((PAGE.parent / name).is_file() for name in ("lab.html", "lab.css", "solver.js", "draw.js", "lab.js"))
