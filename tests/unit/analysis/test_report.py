from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.__main__ import main
from testbed.analysis.changes import asked_over_time
from testbed.analysis.chart import thin
from testbed.analysis.comparison import comparison_page, metric_over_wan_bytes, text_table
from testbed.analysis.figures import FIGURES
from testbed.analysis.load import Record, load
from testbed.analysis.report import run_report
from testbed.core.records import empty_summary
from testbed.core.rundir import RunDir, write_json
from tests.unit.analysis.synthetic import make_run

HOSTILE = "<script>alert(1)</script>$\\frac{"
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Collects tags, and demands that they close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action")]
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def with_summary(run: RunDir, **changes: Any) -> RunDir:
    summary = empty_summary() | {"run_id": run.run_id, "status": "completed", "verdict": "valid", "kind": "emulated"}
    write_json(run.summary, summary | changes)
    return run


def page_of(record: Record) -> str:
    html, undrawn = run_report(record)
    assert undrawn == []
    return html


def test_the_report_is_one_page_that_needs_nothing_else(tmp_path: Path) -> None:
    run = with_summary(make_run(tmp_path), verdict="suspect", reasons=["WAN link slow <1%"])
    html = page_of(load(run.path))
    page = Page(html)
    assert page.tags.count("svg") == len(FIGURES)
    assert all(address.startswith("#") for address in page.addresses)
    assert "http://" not in html and "https://" not in html
    assert html.index("Verdict: suspect") < html.index("WAN link slow &lt;1%") < html.index("<h2>")


def test_what_was_not_known_stands_beside_the_verdict(tmp_path: Path) -> None:
    run = with_summary(make_run(tmp_path), unknowns=["lateness <of> delays"])
    html = page_of(load(run.path))
    shown = "not known: lateness &lt;of&gt; delays"
    assert html.index("Verdict: valid") < html.index(shown) < html.index("<h2>")
    assert html.count(shown) == 1


def test_what_a_record_says_is_never_markup(tmp_path: Path) -> None:
    run = make_run(tmp_path, run_id="20250102T030405Z-x", compressor=HOSTILE)
    with_summary(
        run,
        compressor=HOSTILE,
        reasons=[HOSTILE],
        unknowns=[HOSTILE],
        metric={**empty_summary()["metric"], "name": HOSTILE},
    )
    write_json(run.provenance, {HOSTILE: HOSTILE, "deep": {HOSTILE: {HOSTILE: HOSTILE}}})
    lines = run.events.read_text().replace('"accuracy"', json.dumps(HOSTILE))
    run.events.write_text(lines)
    for html in (page_of(load(run.path)), comparison_page([load(run.path)])):
        assert "script" not in Page(html).tags
        assert "&lt;script&gt;alert(1)&lt;/script&gt;$\\frac{" in html


def test_the_same_record_gives_the_same_bytes(tmp_path: Path) -> None:
    record = load(with_summary(make_run(tmp_path)).path)
    assert page_of(record) == page_of(record)


def test_a_run_without_a_summary_says_so(tmp_path: Path) -> None:
    html = page_of(load(make_run(tmp_path, cut_bytes=10**9, without=("network.json", "provenance.json")).path))
    assert "Verdict: unknown" in html
    assert "the run wrote no summary" in html
    assert html.count("The record holds nothing to draw here.") == len(FIGURES)


def test_losses_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    assert Page(page_of(load(make_run(tmp_path, nan_from=30).path))).tags.count("svg") == len(FIGURES)


def change(t_s: float, what: str, source: str | None = None, **values: tuple[float, float]) -> dict[str, Any]:
    return {
        "event": "change",
        "t_s": t_s,
        "what": what,
        "name": "oregon-virginia",
        "from": source,
        "to": "virginia" if source else None,
        "node": None,
        "asked_s": round(t_s),
        "late_s": t_s - round(t_s),
        "before": {name: before for name, (before, _) in values.items()},
        "after": {name: after for name, (_, after) in values.items()},
        "cause": "mine <b>",
    }


def with_changes(run: RunDir, *changes: dict[str, Any]) -> Record:
    with run.events.open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in changes)
    return load(run.path)


def test_changes_are_marked_and_listed(tmp_path: Path) -> None:
    run = with_summary(make_run(tmp_path))
    assert "Changes while it went on" not in page_of(load(run.path))
    slower = change(10.004, "set", "oregon", rate_bit_s=(100e6, 20e6), delay_s=(0.03, 0.05))
    html = page_of(with_changes(run, slower, change(20.001, "down")))
    Page(html)
    assert "The spec asks for 0 changes; 2 took effect" in html
    cells = [
        "10.004 s", "4 ms", "set", "oregon-virginia, oregon to virginia",
        "rate_bit_s 100 Mbit/s to 20 Mbit/s; delay_s 30 ms to 50 ms", "mine &lt;b&gt;",
    ]  # fmt: skip
    assert "".join(f"<td>{cell}</td>" for cell in cells) in html
    assert html.count(">asked, as it changed<") == 2  # rate and RTT
    assert html.count(">change<") == len(FIGURES)  # all but the one over steps; training has two panels


def test_what_was_asked_follows_the_changes(tmp_path: Path) -> None:
    record = with_changes(
        make_run(tmp_path),
        change(10.5, "set", "oregon", rate_bit_s=(100e6, 20e6)),
        change(30, "set", "oregon", rate_bit_s=(20e6, 40e6)),
    )
    asked = {("oregon-virginia", "oregon"): 100e6, ("oregon-virginia", "virginia"): 100e6}
    steps = asked_over_time(record, "rate_bit_s", asked)
    assert steps == {
        ("oregon-virginia", "oregon"): [
            (0, 100e6), (10.5, 100e6), (10.5, 20e6), (30, 20e6), (30, 40e6), (record.events[-1]["t_s"], 40e6)
        ]
    }  # fmt: skip


def test_many_changes_do_not_hide_the_curves(tmp_path: Path) -> None:
    changes = [change(t_s / 10, "set", "oregon", rate_bit_s=(1e6, 1e6 + t_s)) for t_s in range(500)]
    html = page_of(with_changes(make_run(tmp_path), *changes))
    assert "500 took effect (one for each direction, link or node); the first 200 are shown" in html
    assert ">changes<" in html and ">change<" not in html


def test_thinning_keeps_peaks() -> None:
    points = [(float(x), 0.0) for x in range(100_000)]
    points[77_777] = (77_777.0, 9.0)
    kept = thin(points)
    assert len(kept) <= 600
    assert (77_777.0, 9.0) in kept
    assert kept == sorted(kept)
    assert thin(points[:600]) == points[:600]


def test_bytes_are_read_off_between_two_samples(tmp_path: Path) -> None:
    points = metric_over_wan_bytes(load(make_run(tmp_path).path))
    # 4500 B/s over both directions; evaluations at 20, 40 and 60 s
    assert [x for x, _ in points] == pytest.approx([90e3, 180e3, 270e3])
    assert [y for _, y in points] == pytest.approx([0.8 + 0.1 / 3, 0.8 + 0.2 / 3, 0.9])


def test_invalid_runs_are_drawn_only_when_asked_for(tmp_path: Path) -> None:
    good = with_summary(make_run(tmp_path, run_id="20250102T030405Z-good"))
    bad = with_summary(make_run(tmp_path, run_id="20250102T030405Z-bad"), verdict="invalid", reasons=["late"])
    records = [load(good.path), load(bad.path)]

    def drawn(html: str) -> str:
        return html[html.index("<svg") : html.rindex("</svg>")]

    page = comparison_page(records)
    Page(page)
    assert "Left out of the figures: 1 of 2 runs" in page
    assert "seed 0" in drawn(page) and "20250102T030405Z-bad" not in drawn(page)
    assert "20250102T030405Z-bad" in page
    both = drawn(comparison_page(records, include_invalid=True))  # asked the same, so the run's id tells them apart
    assert "20250102T030405Z-good" in both and "20250102T030405Z-bad" in both


def test_compare_prints_one_line_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [with_summary(make_run(tmp_path)), make_run(tmp_path)]
    assert main(["compare", *(str(run.path) for run in runs)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["run", runs[0].run_id, runs[1].run_id]
    assert main(["compare", "--json", *(str(run.path) for run in runs)]) == 0
    assert [row["status"] for row in json.loads(capsys.readouterr().out)] == ["completed", None]


def test_a_table_does_not_steer_the_terminal(tmp_path: Path) -> None:
    run = with_summary(make_run(tmp_path), compressor="\x1b[31mred")
    assert "\x1b" not in text_table([load(run.path)])


def test_report_names_every_directory_that_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(tmp_path / "out.html")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
    run = with_summary(make_run(tmp_path))
    assert main(["report", str(run.path), "-o", str(tmp_path / "out.html")]) == 0
    Page((tmp_path / "out.html").read_text())
