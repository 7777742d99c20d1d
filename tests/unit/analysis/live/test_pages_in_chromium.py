"""The live pages as a reader uses them: chosen, overlaid, filtered, opened, followed, by mouse and by keyboard.

Screenshots stay under build/screenshots, to be looked at.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.record.summary import empty_summary
from tests.chromium import Chromium
from tests.unit.analysis.figures.drawn_runs import drawn_run
from tests.unit.analysis.synthetic import make_run

pytestmark = [pytest.mark.chromium, pytest.mark.timeout(300), pytest.mark.tier("all")]
SCREENSHOTS = Path(__file__).resolve().parents[4] / "build" / "screenshots"
COMPRESSORS = ("none", "topk", "int8", "powersgd", "fp16", "sz3", "randomk", "bf16", "qsgd", "dgc", "signsgd", "zfp")
FULL = "20250102T030405Z-wan-ddp-topk-0123abcd"
FOLLOWED = "20250102T030406Z-wan-ddp-topk-0123abcd"
SIDEWAYS = "document.documentElement.scrollWidth"
CUT_OFF = """[...document.querySelectorAll(
  "h2, h3, label, select, button, td, th, figcaption, .row > *, .facts b, .plot text, .legend button")]
  .filter((one) => one.getBoundingClientRect().width && !one.closest(".scrolls"))
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.textContent)"""
SHOWN = "[...document.querySelectorAll('#rows > .row')].filter((row) => !row.hidden).length"
TICKED = "document.querySelectorAll('#rows input:checked').length"


@dataclass(frozen=True)
class Site:
    """Pages that are served, and the folder of runs that they show."""

    address: str
    runs: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    runs = tmp_path_factory.mktemp("live") / "runs"
    runs.mkdir()
    for number, compressor in enumerate(COMPRESSORS):
        drawn_run(
            runs, "ddp" if number % 2 else "local_sgd", compressor, verdict="invalid" if number == 11 else "valid"
        )
    whole = make_run(runs, run_id=FULL)
    write_json(whole.summary, {**empty_summary(), "run_id": FULL, "status": "completed", "verdict": "suspect"})
    folder = runs / ".sweeps" / "made"
    folder.mkdir(parents=True)
    rows = [{"axes": {"rtt": f"{r} ms"}, "run_ids": [], "values": {"time_s": {"mean": float(r)}}} for r in (1, 2, 4)]
    write_json(folder / "results.json", {"name": "made", "axes": ["rtt"], "rows": rows})
    command = [sys.executable, "-m", "testbed.analysis", "live", str(runs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Site(process.stdout.readline().strip(), runs)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


@pytest.fixture
def browser(home: Chromium) -> Iterator[Chromium]:
    """A browser that must not have complained when the test is over: of errors, policies or foreign requests."""
    home.complaints.clear()
    yield home
    assert home.complaints == []


def open_runs(browser: Chromium, site: Site, query: str = "", width: int = 1280) -> None:
    browser.open_url(f"{site.address}/{query}", width)
    browser.wait_for("longhaulPage.rows > 0")


def wait_for_ticked(browser: Chromium, count: int) -> None:
    browser.wait_for(f"{TICKED} === {count} && longhaulPage.ticked === {count}")


def series(browser: Chromium) -> list[str]:
    found: list[str] = browser.evaluate("[...document.querySelectorAll('.legend button')].map((b) => b.dataset.series)")
    return found


def test_runs_are_ticked_overlaid_hidden_and_linked(browser: Chromium, site: Site) -> None:
    open_runs(browser, site)
    for place in (1, 2):
        browser.click(f"#rows > .row:not([hidden]):nth-child({2 * place}) input")
        wait_for_ticked(browser, place)
    before = series(browser)
    assert len(before) == 2 and len(parse_qs(urlsplit(browser.evaluate("location.href")).query)["run"]) == 2
    browser.click(".legend button")
    off = "document.querySelector('.plot').data.filter((t) => t.visible === false).length"
    browser.wait_for(f"{off} > 0")
    address = browser.evaluate("location.href")
    browser.open_url(address)
    browser.wait_for(f"longhaulPage.ticked === 2 && {off} > 0")
    browser.click("#clear")
    browser.wait_for(f"{TICKED} === 0 && document.querySelectorAll('.plot').length === 0")


def test_a_filter_hides_rows_and_invalid_runs_are_shown_on_request(browser: Chromium, site: Site) -> None:
    open_runs(browser, site)
    valid = len(COMPRESSORS)
    assert browser.evaluate(SHOWN) == valid, "eleven valid ones and a suspect one"
    browser.click("#invalid")
    assert browser.evaluate(SHOWN) == valid + 1
    browser.click("#filter")
    browser.type("strategy=local_sgd top")
    assert browser.evaluate(SHOWN) == 0
    browser.evaluate("(() => { document.querySelector('#filter').value = ''; })()")
    browser.type("compressor=topk,zfp")
    assert browser.evaluate(SHOWN) == 2
    browser.open_url(browser.evaluate("location.href"))
    browser.wait_for("longhaulPage.rows === 2")


def test_ten_ticks_survive_a_reload(browser: Chromium, site: Site) -> None:
    ids = sorted(path.name for path in site.runs.iterdir() if "20260101" in path.name)[:10]
    open_runs(browser, site, "?" + "&".join(f"run={one}" for one in ids))
    wait_for_ticked(browser, 10)
    drawn = series(browser)
    browser.call("Page.reload")
    browser.wait_for("document.readyState === 'complete' && window.longhaulPage && longhaulPage.ticked === 10")
    assert series(browser) == drawn and len(drawn) == 10


def test_quick_ticks_make_one_further_question(browser: Chromium, site: Site) -> None:
    open_runs(browser, site)
    asked = browser.evaluate(
        """(async () => {
          const boxes = [...document.querySelectorAll('#rows > .row:not([hidden]) input')].slice(0, 10);
          const [real, asked] = [window.fetch, []];
          window.fetch = (path, options) => {
            if (options?.body) asked.push(JSON.parse(options.body).runs.length);
            return real(path, options);
          };
          boxes.forEach((box) => box.click());
          while (longhaulPage.ticked !== 10) await new Promise((done) => setTimeout(done, 10));
          window.fetch = real;
          return asked;
        })()"""
    )
    assert asked == [1, 10]


def test_another_figure_keeps_nothing_of_the_one_before(browser: Chromium, site: Site) -> None:
    """Plotly keeps a zoom as long as the state of a place has the same name."""
    open_runs(browser, site, "?q=compressor%3Dint8,fp16")
    browser.click("#tick-all")
    browser.wait_for("longhaulPage.ticked === 2")
    end = "document.querySelector('.plot')._fullLayout.xaxis.range[1]"
    whole = browser.evaluate(end)
    browser.drag(".plot .nsewdrag", 0.3)
    browser.wait_for(f"{end} < 0.9 * {whole}")
    zoomed = browser.evaluate(end)
    browser.evaluate("overlay().then(() => true)")
    assert browser.evaluate(end) == zoomed, "the same figure again"
    browser.evaluate("(() => { byId('kind').value = 'accuracy_over_steps'; })()")
    browser.evaluate("byId('kind').dispatchEvent(new Event('change'))")
    browser.wait_for(f"{end} >= 60")


def test_the_keyboard_ticks_a_run_and_hides_a_series(browser: Chromium, site: Site) -> None:
    open_runs(browser, site)
    browser.evaluate("document.querySelector('#head button:last-of-type').focus()")
    browser.evaluate("[...document.querySelectorAll('#head button')].at(-1).focus()")
    browser.press("Tab")
    if browser.evaluate("document.activeElement.id") == "rows":  # browsers let the keyboard scroll it
        browser.press("Tab")
    assert browser.evaluate("document.activeElement.type") == "checkbox"
    browser.press(" ")
    wait_for_ticked(browser, 1)
    browser.evaluate("document.querySelector('.legend button').focus()")
    browser.press(" ")
    browser.wait_for("document.querySelector('.legend button').getAttribute('aria-pressed') === 'false'")


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("is_dark", [False, True])
def test_no_page_scrolls_sideways_or_is_cut_off(browser: Chromium, site: Site, width: int, is_dark: bool) -> None:
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
    browser.call("Emulation.setEmulatedMedia", features=scheme)
    for name, path, ready in (
        ("runs", "/", "longhaulPage.rows > 0"),
        ("run", f"/run/{FULL}", "longhaulPage.figures === 6 && longhaulPage.verdicts > 0"),
        ("sweep", "/sweep/made", "longhaulPage.drawn > 0"),
    ):
        browser.open_url(site.address + path, width)
        browser.wait_for(ready)
        if name == "runs":
            browser.click("#tick-all")
            browser.wait_for("longhaulPage.ticked > 0")
        browser.screenshot(SCREENSHOTS / f"live-{name}-{width}{'-dark' if is_dark else ''}.png")
        assert browser.evaluate(SIDEWAYS) <= width, name
        assert browser.evaluate(CUT_OFF) == [], name
        back = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (back == "rgb(255, 255, 255)") != is_dark
    browser.call("Emulation.setEmulatedMedia", features=[])


def test_a_run_is_opened_and_a_link_picked_on_the_drawing(browser: Chromium, site: Site) -> None:
    open_runs(browser, site, "?q=0123abcd")
    browser.click("#rows > .row:not([hidden]) a")
    browser.wait_for("window.longhaulPage && longhaulPage.figures === 6 && longhaulPage.verdicts > 0")
    assert browser.evaluate("document.querySelector('#state').innerText").startswith("suspect")
    browser.click("#topology line[data-link]")
    assert browser.evaluate("document.querySelectorAll('#links tr.picked').length") == 2, "both directions"
    browser.evaluate("document.querySelector('#kinds').value = 'step'")
    browser.evaluate("document.querySelector('#kinds').dispatchEvent(new Event('change'))")
    browser.wait_for("document.querySelectorAll('#events tr').length === 240")


def test_a_page_is_printed_with_vectors(browser: Chromium, site: Site, tmp_path: Path) -> None:
    browser.open_url(f"{site.address}/run/{FULL}")
    browser.wait_for("longhaulPage.figures === 6")
    browser.pdf(tmp_path / "run.pdf")
    assert b"/Subtype /Image" not in (tmp_path / "run.pdf").read_bytes()
    assert browser.evaluate("Math.max(...[...document.querySelectorAll('.plot')].map((p) => p.clientWidth))") > 640


def test_a_run_is_followed_to_its_end(browser: Chromium, site: Site) -> None:
    """A script appends what was recorded, so that each line has its time."""
    made = make_run(site.runs, run_id=FOLLOWED)
    lines = made.events.read_text().splitlines(keepends=True)
    made.events.write_text("".join(lines[: len(lines) // 2]))
    with made.held():
        browser.open_url(f"{site.address}/run/{FOLLOWED}")
        count = len(lines) // 2
        browser.wait_for(f"longhaulPage.followed === {count}")
        assert "step 28 of 60" in browser.evaluate("document.querySelector('#state').innerText")
        assert browser.evaluate("document.querySelector('#state .verdict').textContent") == "running"
        delays_s = [
            _delay_s(browser, made, line, number) for number, line in enumerate(lines[count : count + 4], count + 1)
        ]
        assert min(delays_s) < 2.0
        with made.events.open("a") as file:
            file.writelines(lines[count + 4 :])
        write_json(made.summary, {**empty_summary(), "run_id": FOLLOWED, "status": "completed", "verdict": "valid"})
    browser.wait_for("longhaulPage.isEnded && longhaulPage.figures === 6")
    assert browser.evaluate("document.querySelector('#live').hidden")
    assert browser.evaluate("longhaulPage.followed") == len(lines)


def _delay_s(browser: Chromium, run: RunDir, line: str, number: int) -> float:
    """Append a line, and return the seconds until the page has drawn it."""
    with run.events.open("a") as file:
        file.write(line)
    begin_s = time.monotonic()
    browser.wait_for(f"longhaulPage.followed === {number}")
    return time.monotonic() - begin_s


def test_redrawing_two_hundred_times_leaves_nothing(browser: Chromium, site: Site) -> None:
    open_runs(browser, site, "?q=compressor%3Dint8,fp16")
    browser.click("#tick-all")
    browser.wait_for("longhaulPage.ticked === 2")
    again = "{ panels: place.boxes.map((box) => structuredClone(box.panel)), notes: [] }"
    draw = f"(async () => {{ for (let n = 0; n < %d; n += 1) await place.draw({again}); return true; }})()"
    browser.evaluate(draw % 20)
    before = _heap_bytes(browser)
    browser.evaluate(draw % 200)
    assert _heap_bytes(browser) < before + 5e6


def _heap_bytes(browser: Chromium) -> float:
    browser.call("HeapProfiler.enable")
    browser.call("HeapProfiler.collectGarbage")
    return float(browser.call("Runtime.getHeapUsage")["usedSize"])


def test_seven_tabs_are_served(browser: Chromium, site: Site) -> None:
    """A browser has six connections to a host: a stream in each tab would leave the seventh waiting."""
    tabs = [browser.open_tab(f"{site.address}/run/{FULL}") for _ in range(6)]
    tabs.append(browser.open_tab(f"{site.address}/"))
    browser.wait_for("window.longhaulPage && longhaulPage.rows > 0", tabs[-1])
    for tab in tabs:
        browser.call("Runtime.getIsolateId")
        browser.evaluate("window.close()", tab)


def test_a_sweep_is_looked_at_along_its_axis(browser: Chromium, site: Site) -> None:
    open_runs(browser, site)
    browser.click("#sweeps a")
    browser.wait_for("window.longhaulPage && longhaulPage.drawn > 0 && longhaulPage.rows === 3")
    assert browser.evaluate("document.querySelector('.plot').data.find((t) => t.x.length === 3).x") == [1, 2, 4]


def test_what_is_in_a_record_is_text(browser: Chromium, site: Site) -> None:
    evil = "<img src=x onerror=alert(1)>"
    path = drawn_run(site.runs, compressor="none", reasons=[evil], verdict="suspect", seed=9)
    summary = json.loads((path / "summary.json").read_text()) | {"strategy": evil}
    write_json(path / "summary.json", summary)
    open_runs(browser, site)
    browser.wait_for("document.body.innerText.includes('<img src=x')")
    browser.open_url(f"{site.address}/run/{path.name}")
    browser.wait_for("longhaulPage.figures !== undefined")
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert evil in browser.evaluate("document.querySelector('#reasons').innerText")
