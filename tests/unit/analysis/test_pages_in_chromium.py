"""The pages as a reader sees them: on a phone, a small and a large screen, and on paper.

Screenshots stay under build/screenshots, to be looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from testbed.analysis.__main__ import main
from testbed.analysis.report.sweep_page import command as sweep
from testbed.core.record.run_directory import RunDir
from tests.chromium import Chromium
from tests.unit.analysis.compared import template, variant

pytestmark = [pytest.mark.chromium, pytest.mark.timeout(180), pytest.mark.tier("all")]
SCREENSHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"
WIDTHS = (360, 800, 1400)
NARROW_LETTERS_PX = 6.5
"""Below, nobody reads a figure's letters on a phone."""


_DRAWN = """new Promise((done) => {
  const count = document.querySelectorAll(".plot").length;
  const look = () => (count && (window.longhaulPage || {}).drawn !== count ? setTimeout(look, 20) : done());
  look();
})"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page over several methods, seeds and networks, and the page of one run."""
    root = tmp_path_factory.mktemp("pages")
    source = template(root / "template")
    names = ("none", "topk", "int8", "powersgd", "fp16", "sz3", "terngrad", "deepreduce_bloom")
    runs = []
    for number in range(24):
        scatter = 1 + 0.03 * (number % 3) * (1 + number % 8)
        changes = {"time_s": 20.0 * scatter, "compression_ratio": 1.0 + number % 8, "seed": number % 3}
        sent = {"payload": 2.1e9 / (1 + number % 8), "wire_total": None, "wire_wan": 1.1e9 / (1 + number % 8) * scatter}
        changes |= {"bytes": {**sent, "dense": 2.1e9}, "step_time_s": {"mean": 0.5, "p50": 0.5 * scatter, "p95": 0.7}}
        runs.append(variant(source, root / "runs", number, compressor=names[number % 8], **changes))
    bad = variant(source, root / "runs", 90, verdict="invalid", reasons=["the workers were late by 9.1% of the time"])
    runs += [variant(source, root / "runs", 91, topo="us3"), variant(source, root / "runs", 92, density=0.1), bad]
    output = root / "report.html"
    assert main(["report", "-o", str(output), *(str(run.path) for run in runs)]) == 0
    assert main(["finish", str(bad.path)]) == 0
    return {"comparison": output, "run": bad.report, "sweep": swept(root / "runs", runs[:24])}


def swept(root: Path, runs: Sequence[RunDir]) -> Path:
    """The page of a sweep over methods and seeds, with values of a second axis that go with the methods."""
    points = []
    for run in runs:
        spec = json.loads(run.spec.read_text())
        name = spec["compressor"]["name"]
        values = {"compressor": name, "family": f"<b>{len(name) % 3}", "seed": str(spec["seed"])}
        points.append({"values": values, "run_id": run.run_id})
    question = {"name": "made", "axes": ["compressor", "family", "seed"], "points": points}
    sweep(question, root, root / ".sweeps" / "made")
    return root / ".sweeps" / "made" / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


def show(browser: Chromium, page: Path, width: int) -> None:
    """Open a page and wait until its figures are drawn."""
    browser.open(page, width)
    browser.evaluate(_DRAWN)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["comparison", "run", "sweep"])
def test_a_page_fits_its_window(browser: Chromium, pages: dict[str, Path], name: str, width: int) -> None:
    browser.complaints.clear()
    show(browser, pages[name], width)
    browser.screenshot(SCREENSHOTS / f"{name}-{width}.png")
    assert browser.complaints == [], "a policy was broken, or something was asked for that is not in the page"
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "the page itself scrolls sideways"
    seen = "[...document.querySelectorAll('.main-svg, .figure svg')].map(s => s.getBoundingClientRect().width)"
    drawn = browser.evaluate(seen)
    assert drawn and all(one > 200 for one in drawn)
    letters = "[...document.querySelectorAll('.xtick text, .ytick text, .figure svg text')]"
    assert min(browser.evaluate(f"{letters}.map(t => t.getBoundingClientRect().height)")) > NARROW_LETTERS_PX


def test_a_method_is_told_by_colour_and_marker(browser: Chromium, pages: dict[str, Path]) -> None:
    show(browser, pages["comparison"], 1400)
    swatches = browser.evaluate("[...document.querySelectorAll('.swatch')].map(s => s.innerHTML)")
    assert len(swatches) == 10, "eight methods, one of them on another network, and with another density"
    assert len(set(swatches)) == 9, "on another network it looks the same"


def test_an_empty_box_hides_the_rows_of_its_value(browser: Chromium, pages: dict[str, Path]) -> None:
    seen = "document.querySelectorAll('.scatterlayer .trace').length"
    rows = "[...document.querySelectorAll('tr[class^=row]')].filter(e => e.offsetHeight).map(e => e.innerText)"
    figures = "[...document.querySelectorAll('figure')].filter(e => e.offsetHeight).length"
    browser.complaints.clear()
    show(browser, pages["sweep"], 800)
    before, drawn = browser.evaluate(rows), browser.evaluate(seen)
    assert len(before) == 8 and browser.evaluate(figures) == 4
    browser.evaluate("document.querySelector('#axis-0-1').click()")
    after = browser.evaluate(rows)
    (gone,) = set(before) - set(after)
    chosen = browser.evaluate("document.querySelector('#axis-0-1').parentElement.innerText").strip()
    assert chosen in gone.split() and browser.evaluate(seen) < drawn - 3, "its curves too"
    browser.evaluate("[0, 1, 2].forEach(n => document.querySelector('#axis-1-' + n).click())")
    assert browser.evaluate(rows) == [] and browser.evaluate(figures) == 0
    browser.evaluate("document.querySelector('.boxes button').click()")
    assert browser.evaluate(rows) == before and browser.evaluate(figures) == 4 and browser.complaints == []


@pytest.mark.parametrize("name", ["comparison", "run", "sweep"])
def test_a_page_is_printed_whole(browser: Chromium, pages: dict[str, Path], name: str) -> None:
    show(browser, pages[name], 800)
    browser.call("Emulation.setEmulatedMedia", media="print")
    browser.call("Emulation.setDeviceMetricsOverride", width=700, height=1000, deviceScaleFactor=1, mobile=False)
    wide = "[...document.querySelectorAll('table')].map(t => t.scrollWidth).reduce((a, b) => Math.max(a, b), 0)"
    most = browser.evaluate(wide)
    browser.call("Emulation.setEmulatedMedia", media="")
    browser.pdf(SCREENSHOTS / f"{name}.pdf")
    assert (SCREENSHOTS / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert most <= 760, f"a table is {most} px wide, and A4 has about 700: its right columns would be cut off"
