"""The report page, in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bsrs.cli import main
from bsrs.errors import BadInput
from bsrs.report import write_report
from bsrs.report.plots import numbers
from bsrs.reproduce.claims import Claim, write_claims
from run_folders import config, write_run, write_sweep

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking "
    "--disable-component-update --disable-sync --no-first-run --force-prefers-reduced-motion --window-size=1280,1000"
)


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
    return write_report(store, tmp_path_factory.mktemp("page") / "report.html", "Two envs")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no chromium and chromedriver on this machine (Debian: apt-get install chromium chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


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
    before = opened.find_element("id", "curves").screenshot_as_png
    _click(opened, "#chips .chip:nth-child(2)")
    assert _names(opened) == ["η = 0", "η = 2", "η = 10"]
    assert opened.find_element("css selector", "#chips .chip:nth-child(2)").get_attribute("aria-pressed") == "false"
    assert opened.find_element("id", "curves").screenshot_as_png != before
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
    assert ["failed" in rows[0].text, "diverged" in rows[1].text, "unfinished" in rows[2].text] == [True] * 3
    assert "EnvFault: reward </script> is nan" in rows[0].text
    opened.find_element("id", "find").send_keys("diverged cartpole")
    assert len(opened.find_elements("css selector", "#run-table tbody tr")) == 1
    _click(opened, "#run-table details summary")
    assert '"learning_rate": 0.0005' in opened.find_element("css selector", "#run-table pre").text
    assert "config.json is damaged" in opened.find_element("css selector", ".warning").text


def test_the_command_can_be_copied(opened: Any, store: Path, page: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    assert opened.find_element("id", "command").text == f"bsrs report {store} -o {page}"
    _click(opened, "#copy")
    WebDriverWait(opened, 10).until(lambda b: b.find_element("id", "copy").text == "copied")


def test_pictures_and_claims_are_on_the_page(opened: Any) -> None:
    loaded = "return [...document.querySelectorAll('figure img')].map(img => img.complete && img.naturalWidth > 0)"
    assert opened.execute_script(loaded) == [True] * 3  # the one that lay there, and one for each env
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
        write_report(tmp_path, tmp_path / "page.html")


def test_damaged_claims_are_told(tmp_path: Path) -> None:
    write_run(tmp_path, config("CartPole-v1", 0.0, 0), [1.0])
    (tmp_path / "claims.json").write_text("[]")
    with pytest.raises(BadInput, match=r"claims\.json is damaged"):
        write_report(tmp_path, tmp_path / "page.html")


def test_a_store_where_nothing_has_ended_still_has_a_page(tmp_path: Path) -> None:
    write_run(tmp_path, config("CartPole-v1", 0.0, 0), [1.0], None)
    assert "No run has ended yet" in write_report(tmp_path, tmp_path / "page.html").read_text()


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
