"""Reports in Chromium: they open without a network and without errors; zoom, pointer and search work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnplace as gp
from gnnplace.portfolio.comparison import candidates
from gnnplace.report.learning_curves import Rated, beside, curves, estimate
from gnnplace.report.page import Section, write_page

pytest.importorskip("plotly", reason="needs gnnplace[report]")
webdriver = pytest.importorskip("selenium.webdriver", reason="needs gnnplace[all]")

from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium with its driver: apt-get install chromium chromium-driver")

WAIT_S = 120  # of a busy machine
MOST_S = 3.0  # of processor time, for a graph of 11,000 ops
RANGE = "return document.getElementById('timeline')._fullLayout.xaxis.range"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1500,1100"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield found
    found.quit()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    problem = gp.problem("squeezenet", cluster="k40-2")
    path = tmp_path_factory.mktemp("report") / "small.html"
    asked = {name: partial(gp.place, planner=name) for name in ("heft", "gpu", "expert")}
    found = candidates(problem, asked, "critical-path")
    (two,) = (each.placement for each in found if each.planner == "heft")  # the others are on one device
    gp.write_report(problem, two, path, found)
    return path


def opened(browser: Any, path: Path) -> None:
    browser.get(path.as_uri())
    until(browser, "return performance.getEntriesByName('drawn').length")


def until(browser: Any, script: str) -> Any:
    return WebDriverWait(browser, WAIT_S, poll_frequency=0.05).until(lambda found: found.execute_script(script))


def requested(browser: Any) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith(("data:", "blob:"))]


def test_a_page_opens_without_complaints_and_asks_for_nothing(browser, small: Path):
    requested(browser)
    opened(browser, small)
    assert browser.get_log("browser") == []
    assert requested(browser) == [small.as_uri()]
    titles = [each.text for each in browser.find_elements(By.TAG_NAME, "h2")]
    assert titles[0] == "The step" and {"Planners", "Devices by module and time", "Where this comes from"} <= set(titles)


def test_dragging_zooms_and_the_button_shows_the_whole_step_again(browser, small: Path):
    opened(browser, small)
    whole = browser.execute_script(RANGE)
    plot = browser.find_element(By.CSS_SELECTOR, "#timeline .nsewdrag")
    ActionChains(browser).move_to_element_with_offset(plot, -100, 0).click_and_hold().move_by_offset(200, 0).release().perform()
    until(browser, f"{RANGE}[1] < {whole[1]}")
    low, high = browser.execute_script(RANGE)
    assert whole[0] < low < high < whole[1] and high - low == pytest.approx((whole[1] - whole[0]) * 200 / plot.size["width"], rel=0.05)
    browser.find_element(By.ID, "whole").click()
    until(browser, f"{RANGE}[1] == {whole[1]}")


def test_the_search_zooms_to_an_op_and_the_pointer_names_it(browser, small: Path):
    opened(browser, small)
    problem = gp.problem("squeezenet", cluster="k40-2")
    name = problem.graph.op_names[int(problem.time_ns[:, 1].argmax())]
    browser.find_element(By.ID, "search").send_keys(name)
    until(browser, f"return [...document.querySelectorAll('#matches li')].some(each => each.firstChild.data === {json.dumps(name)})")
    browser.find_element(By.ID, "search").send_keys(Keys.ENTER)
    until(browser, "const [a, b] = document.getElementById('timeline')._fullLayout.xaxis.range; return b - a < 200")
    x, y = browser.execute_script(
        "const plot = document.getElementById('timeline'), { xaxis, yaxis } = plot._fullLayout;"
        "const found = plot.data.find(each => each.name === 'found');"
        "const box = plot.getBoundingClientRect(), middle = (found.x[0] + found.x[1]) / 2, row = (found.y[0] + found.y[2]) / 2;"
        "return [box.left + xaxis._offset + xaxis.d2p(middle), box.top + yaxis._offset + yaxis.d2p(row)].map(Math.round)"
    )
    actions = ActionChains(browser)
    actions.w3c_actions.pointer_action.move_to_location(x, y)
    actions.perform()
    until(browser, "return document.getElementById('tip').style.display === 'block'")
    shown = browser.find_element(By.ID, "tip").text.splitlines()
    assert shown[0] == name and " ms (" in shown[3] and "bytes" in shown[4]


def test_a_row_of_the_critical_chain_zooms_to_it(browser, small: Path):
    opened(browser, small)
    row = browser.find_elements(By.CSS_SELECTOR, "tr[data-from]")[-1]
    start, end = (int(row.get_attribute(f"data-{name}")) / 1e6 for name in ("from", "to"))
    whole = browser.execute_script(RANGE)
    browser.execute_script("arguments[0].click()", row)
    until(browser, f"{RANGE}[0] > 0")
    expected = [max(0, start - (end - start) / 10), min(whole[1], end + (end - start) / 10)]
    assert browser.execute_script(RANGE) == pytest.approx(expected)


def test_colours_tell_modules(browser, small: Path):
    opened(browser, small)
    browser.execute_script("const box = document.getElementById('colouring'); box.value = 'module'; box.dispatchEvent(new Event('change'))")
    until(browser, "return document.getElementById('timeline').data[0].name === 'stem'")
    assert browser.get_log("browser") == []


def test_micro_batches_have_hues_and_numbers_and_the_pointer_names_them(browser, tmp_path: Path):
    plan = gp.place(gp.problem("squeezenet", "k40-2", micro_batches=4), "1f1b")
    plan.report(tmp_path / "several.html")
    opened(browser, tmp_path / "several.html")
    listed = "return [...document.querySelectorAll('#timeline .legend .legendtext')].map(each => each.textContent)"
    assert browser.execute_script(listed)[:5] == ["0", "1", "2", "3", "once a step"]
    written = "return document.getElementById('timeline').data.find(each => each.mode === 'text')?.text"
    assert set(browser.execute_script(written)) == {"0", "1", "2", "3"}
    x, y = browser.execute_script(
        "const plot = document.getElementById('timeline'), { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect();"
        "const { x, y, text } = plot.data.find(each => each.mode === 'text'), at = text.indexOf('2');"
        "return [box.left + xaxis._offset + xaxis.d2p(x[at]), box.top + yaxis._offset + yaxis.d2p(y[at])].map(Math.round)"
    )
    actions = ActionChains(browser)
    actions.w3c_actions.pointer_action.move_to_location(x, y)
    actions.perform()
    until(browser, "return document.getElementById('tip').style.display === 'block'")
    assert browser.find_element(By.ID, "tip").text.splitlines()[3] == "micro-batch 2"
    browser.execute_script("const box = document.getElementById('colouring'); box.value = 'phase'; box.dispatchEvent(new Event('change'))")
    until(browser, "return document.getElementById('timeline').data[0].name === 'forward'")
    assert browser.execute_script(written) is None and browser.get_log("browser") == []


def test_names_can_not_break_out_of_a_page(browser, tmp_path: Path):
    hostile = "</script><script>document.title='broken'</script><b>&"
    ops = [gp.Op(f"{hostile}{number}", "MatMul", (gp.Output(4096),), flops=10**9, layer=hostile) for number in range(3)]
    problem = gp.problem(gp.ComputationGraph.from_ops(hostile, ops, [(0, 0, 1), (1, 0, 2)]), "k40-2")
    gp.write_report(problem, gp.place(problem, "heft"), tmp_path / "hostile.html")
    opened(browser, tmp_path / "hostile.html")
    assert browser.title == f"{hostile} on k40-2" and browser.get_log("browser") == []
    assert browser.find_element(By.TAG_NAME, "h1").text == f"{hostile} on k40-2"


MARKUP = '<a href="https://evil.example/?x" target="_self">A</a><b>B</b>&lt;i&gt; %{customdata} %{y} $x$'
ROWS = "return document.getElementById('timeline').data.findIndex(each => each.yaxis === 'y2')"


def drawn_texts(browser: Any, hover: str = "") -> list[str]:
    """The texts of all figures, and of what is under the pointer at `hover`. Nothing in them is a link or a part of its own style."""
    if hover:
        browser.execute_script(f"Plotly.Fx.hover({hover})")
        until(browser, "return document.querySelectorAll('.hoverlayer text').length")
    assert browser.execute_script("return document.querySelectorAll('svg a').length") == 0
    styles = "return [...document.querySelectorAll('svg tspan')].map(each => each.style.fontWeight + each.style.fontStyle).join('')"
    assert browser.execute_script(styles) == ""
    return browser.execute_script("return [...document.querySelectorAll('svg text')].map(each => each.textContent)")


def named(texts: list[str]) -> int:
    return sum(MARKUP in text for text in texts)


def test_names_are_text_in_every_figure_of_a_step(browser, tmp_path: Path):
    devices = [gp.Device(f"{MARKUP}{kind}", kind, 2**33, 10**12, 10**11) for kind in ("cpu", "gpu")]
    links = [gp.Link(one.name, other.name, 10**9, channel=MARKUP) for one, other in zip(devices, devices[::-1], strict=True)]
    ops = [gp.Op(f"{MARKUP}{each}", MARKUP, (gp.Output(4096),), flops=10**9, layer=f"{MARKUP}/{each}") for each in range(3)]
    graph = gp.ComputationGraph.from_ops(MARKUP, ops, [(0, 0, 1), (1, 0, 2)])
    problem = gp.problem(graph, gp.Cluster(MARKUP, tuple(devices), tuple(links)))
    gp.write_report(problem, gp.Placement(np.array([0, 1, 0], dtype=np.int32)), tmp_path / "hostile.html")
    opened(browser, tmp_path / "hostile.html")
    memory = browser.execute_script(ROWS)
    before = named(drawn_texts(browser))
    assert before >= 2 + 1 + 2 + 3 + 2  # devices, their channel, their memory; modules, devices of the map
    assert named(drawn_texts(browser, f"'timeline', [{{curveNumber: {memory}, pointNumber: 0}}], ['xy2']")) > before
    assert named(drawn_texts(browser, "'layers', [{curveNumber: 0, pointNumber: [0, 0]}]")) > before
    browser.execute_script("const box = document.getElementById('colouring'); box.value = 'module'; box.dispatchEvent(new Event('change'))")
    until(browser, "return document.getElementById('timeline').data[0].name.length > 20")
    assert named(drawn_texts(browser)) > before


def test_names_are_text_in_every_figure_of_trainings(browser, tmp_path: Path):
    lines = {(MARKUP, what): [{0: 4.0, 9: 2.0}, {0: 5.0, 9: 3.0}] for what in ("best so far", "mean of samples")}
    rated = [Rated(f"{MARKUP}{learned}", estimate([1.0]), learned) for learned in (True, False)]
    figures = {"all": curves(lines, {MARKUP: "#123456"}, {MARKUP: 1.0}, "ms"), "beside": beside(rated, 0.5, "ms")}
    places = "".join(f'<div id="{name}"></div>' for name in figures)
    write_page(tmp_path / "runs.html", MARKUP, [Section(MARKUP, places)], {"figures": figures})
    opened(browser, tmp_path / "runs.html")
    before = named(drawn_texts(browser))
    assert before >= 3 + 2
    for curve in (1, 2, 3):
        assert named(drawn_texts(browser, f"'all', [{{curveNumber: {curve}, pointNumber: 0}}]")) > before
    assert named(drawn_texts(browser, "'beside', [{curveNumber: 0, pointNumber: 0}]")) > before


def test_eleven_thousand_ops_are_drawn_in_three_seconds(browser, tmp_path: Path):
    problem = gp.problem("nmt-2", cluster="k40-2")
    gp.write_report(problem, gp.place(problem, "expert"), tmp_path / "large.html")
    browser.get("about:blank")
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})  # other work on the machine doesn't count
    opened(browser, tmp_path / "large.html")
    took = {each["name"]: each["value"] for each in browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]}
    browser.execute_cdp_cmd("Performance.disable", {})
    assert problem.num_ops > 10_000 and took["TaskDuration"] < MOST_S
    assert len(browser.execute_script("return document.getElementById('timeline').data")) < 20


def test_learning_curves_are_drawn(browser, tmp_path: Path):
    figure = curves({("gnn", "best so far"): [{0: 4.0, 9: 2.0}, {0: 5.0, 9: 3.0}]}, {"gnn": "#123456"}, {"bound": 1.0}, "ms")
    write_page(tmp_path / "runs.html", "Training", [Section("All", '<div id="all"></div>')], {"figures": {"all": figure}})
    opened(browser, tmp_path / "runs.html")
    assert browser.get_log("browser") == []
    assert "best so far" not in browser.find_element(By.ID, "all").text and "gnn" in browser.find_element(By.ID, "all").text
