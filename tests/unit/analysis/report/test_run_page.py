from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.__main__ import main
from testbed.analysis.comparison.comparison import compare
from testbed.analysis.figures.run_figures import TITLES
from testbed.analysis.record.changes import asked_over_time
from testbed.analysis.record.record import Record, load
from testbed.analysis.report.comparison_page import comparison_page, report_figures
from testbed.analysis.report.run_page import run_report
from testbed.analysis.style.series_style import COLORS, DASHES, style_of
from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.record.summary import empty_summary
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


def comparison_of(records: list[Record], where: Path, *, take_all: bool = False) -> str:
    comparison = compare(records, take_all=take_all)
    return comparison_page(comparison, report_figures(records, take_all=take_all), where / "report.html")


def test_the_report_is_one_page_that_needs_nothing_else(tmp_path: Path) -> None:
    run = with_summary(make_run(tmp_path), verdict="suspect", reasons=["WAN link slow <1%"])
    html = page_of(load(run.path))
    page = Page(html)
    assert page.tags.count("svg") == len(TITLES)
    raw = [address for address in page.addresses if not address.startswith("#")]
    assert raw == [f"./{file.name}" for file in (run.spec, run.provenance, run.network, run.events)] + [
        *("./samples.parquet", "./metrics.openmetrics", "./summary.json")
    ]
    assert "http://" not in html and "https://" not in html
    assert html.index("Verdict: suspect") < html.index("WAN link slow &lt;1%") < html.index("<h2>")


def test_what_was_not_known_stands_beside_the_verdict(tmp_path: Path) -> None:
    run = with_summary(make_run(tmp_path), unknowns=["lateness <of> delays"])
    html = page_of(load(run.path))
    shown = "not checked: lateness &lt;of&gt; delays"
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
    for html in (page_of(load(run.path)), comparison_of([load(run.path)], tmp_path)):
        # Of a comparison: data of its figures, Plotly.js packed, and one script that the policy knows by its digest.
        assert Page(html).tags.count("script") == (3 if "script-src" in html else 0)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;$\\frac{" in html


@pytest.mark.tier("all")
def test_the_same_record_gives_the_same_bytes(tmp_path: Path) -> None:
    record = load(with_summary(make_run(tmp_path)).path)
    assert page_of(record) == page_of(record)


def test_a_run_without_a_summary_says_so(tmp_path: Path) -> None:
    html = page_of(load(make_run(tmp_path, cut_bytes=10**9, without=("network.json", "provenance.json")).path))
    assert "Verdict: unknown" in html
    assert "the run wrote no summary" in html
    assert html.count("The record holds nothing to draw here.") == len(TITLES)


def test_losses_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    assert Page(page_of(load(make_run(tmp_path, nan_from=30).path))).tags.count("svg") == len(TITLES)


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
    assert "Network events" not in page_of(load(run.path))
    slower = change(10.004, "set", "oregon", rate_bit_s=(100e6, 20e6), delay_s=(0.03, 0.05))
    html = page_of(with_changes(run, slower, change(20.001, "down")))
    Page(html)
    assert "The spec asks for 0 changes; 2 took effect" in html
    cells = [
        "10.004 s", "4 ms", "set", "oregon-virginia, oregon to virginia",
        "rate_bit_s 100 Mbit/s to 20 Mbit/s; delay_s 30 ms to 50 ms", "mine &lt;b&gt;",
    ]  # fmt: skip
    assert "".join(f"<td>{cell}</td>" for cell in cells) in html
    assert html.count(">target, as it changed<") == 2  # rate and RTT
    assert html.count(">change<") == len(TITLES)  # all but the one over steps; training has two panels


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


def drawn(html: str) -> set[str]:
    """Names of the series in the figures of a page."""
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return {trace["legendgroup"] for one in json.loads(found[1])["figures"] for trace in one["data"] if "x" in trace}


def test_invalid_runs_are_drawn_only_when_asked_for(tmp_path: Path) -> None:
    good = with_summary(make_run(tmp_path, run_id="20250102T030405Z-good"))
    bad = with_summary(
        make_run(tmp_path, run_id="20250102T030405Z-bad", compressor="int8"), verdict="invalid", reasons=["late <1%"]
    )
    records = [load(good.path), load(bad.path)]
    page = comparison_of(records, tmp_path)
    Page(page)
    assert "Left out: 1 of 2 runs, invalid or unfinished: 20250102T030405Z-bad (invalid)" in page
    assert drawn(page) == {"ddp, topk"}
    assert "invalid (left out)" in page and "late &lt;1%" in page
    both = comparison_of(records, tmp_path, take_all=True)
    assert drawn(both) == {"topk", "int8"} and "left out" not in both.lower()


def test_the_comparison_links_to_raw_data_wherever_it_lies(tmp_path: Path) -> None:
    run = with_summary(make_run(tmp_path / "my runs#1"))
    beside = f"./my%20runs%231/{run.run_id}"
    for where, to_it in ((tmp_path, beside), (run.path, "."), (tmp_path / "deep" / "er", f"./../.{beside}")):
        page = Page(comparison_of([load(run.path)], where))
        raw = [address for address in page.addresses if not address.startswith("#")]
        assert raw == [
            to_it if to_it != "." else "./.",
            *(f"{to_it}/{name}" for name in ("summary.json", "events.jsonl")),
        ]


def test_a_method_is_drawn_alike_in_table_and_figures(tmp_path: Path) -> None:
    runs = [
        with_summary(make_run(tmp_path, run_id=f"20250102T030405Z-{name}", compressor=name))
        for name in ("none", "topk", "int8")
    ]
    page = comparison_of([load(run.path) for run in runs], tmp_path)
    swatches = re.findall(r'<svg class="swatch".*?</svg>', page)
    assert len(set(swatches)) == 3
    for name, swatch in zip(("none", "int8", "topk"), swatches, strict=True):
        style = style_of("ddp", name)
        slot = DASHES.index(style.dash)
        assert swatch.count(COLORS[slot]) == 2, "a line and its marker"
        assert f'"name":"{name}"' in page and COLORS[slot] in page[page.index(f'"name":"{name}"') :]


def test_a_page_that_cannot_be_written_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = with_summary(make_run(tmp_path))
    (tmp_path / "file").touch()
    assert main(["report", str(run.path), "-o", str(tmp_path / "file" / "out.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_every_page_fits_a_phone_and_paper(tmp_path: Path) -> None:
    run = with_summary(make_run(tmp_path))
    for html in (page_of(load(run.path)), comparison_of([load(run.path)], tmp_path)):
        assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
        assert "@media print" in html and "@media (max-width: 640px)" in html


def test_report_names_every_directory_that_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(tmp_path / "out.html")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
    run = with_summary(make_run(tmp_path))
    assert main(["report", str(run.path), "-o", str(tmp_path / "out.html")]) == 0
    Page((tmp_path / "out.html").read_text())


def test_a_search_of_sizes_has_a_table(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert "Bucket size search" not in run_report(load(run.path))[0]
    note = {"t_s": 1.5, "event": "tuning", "rank": 0, "step": 5, "what": HOSTILE, "size_bytes": 4_000_000, "trial": 1}
    with run.events.open("a") as file:
        file.write(json.dumps({**note, "buckets": 7, "step_s": 0.25}) + "\n")
        file.write(json.dumps({**note, "what": "chosen", "buckets": None, "step_s": None}) + "\n")
    html, _ = run_report(load(run.path))
    Page(html)
    table = html.partition("Bucket size search")[2].partition("</table>")[0]
    assert HOSTILE not in table
    assert "a step takes (ms)" in table and ">250<" in table and "chosen" in table


def test_replicas_without_a_server_have_a_table(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert "Gossip replicas" not in run_report(load(run.path))[0]
    graph = {"graph": HOSTILE, "edges": 13, "wan_edges": 1, "most_neighbours": 4, "spectral_gap": 0.07125}
    notes = [{"t_s": 1.5, "event": "mixing", "rank": 0, "step": 1, **graph, "consensus_step_size": 0.1}]
    notes += [{"t_s": 9.0, "event": "consensus", "rank": rank, "step": 8, "distance": 0.01} for rank in (0, 1)]
    with run.events.open("a") as file:
        file.writelines(json.dumps(note) + "\n" for note in notes)
    html, _ = run_report(load(run.path))
    Page(html)
    section = html.partition("Gossip replicas")[2].partition("</table>")[0]
    assert HOSTILE not in section
    assert "13 edges, 1 of them between regions; at most 4 neighbours; spectral gap 0.0712; consensus step" in section
    found = " ".join(re.sub(r"<[^>]*>", " ", section).split())
    assert found.endswith("0 1.00e-02 1 1.00e-02")


def test_keys_and_values_that_are_far_have_a_table(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert "KV transfer" not in run_report(load(run.path))[0]
    text = {"tokens": 63, "found": [1, 2], "set_up_bytes": 4_000, "near_bytes": 5_000, "up_bytes": 600, "down_bytes": 7}
    text |= {
        "round_trips": 252,
        "round_trips_ahead": 3,
        "first_token_s": 0.25,
        "token_s": None,
        "questions": 8,
        "right": 7,
    }
    judged = {"token_match": 0.96875, "mass_recall": 0.99, "relative_error": 0.125}
    notes = [{"t_s": 1.5, "event": "kv_text", "rank": 0, "step": 1 + n, "text": n, **text} for n in (0, 1)]
    notes.append({"t_s": 9.0, "event": "kv_quality", "rank": 0, "step": 2, "text": 1, **judged, "cosine": HOSTILE})
    with run.events.open("a") as file:
        file.writelines(json.dumps(note) + "\n" for note in notes)
    html, _ = run_report(load(run.path))
    Page(html)
    section = html.partition("KV transfer")[2].partition("</table>")[0]
    found = " ".join(re.sub(r"<[^>]*>", " ", section).split())
    sizes = "4 600 7 5 252 + 3 ahead 250"
    assert "set up (kB) up (B) down (B) near (kB) round trips to the first (ms)" in found
    assert f"0 63 {sizes}" in found and found.endswith("7 of 8 0.969 0.990 0.125")


def test_a_plan_of_factors_has_a_table(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert "K-FAC" not in run_report(load(run.path))[0]
    owners = [1, None, 1, 0]
    factors = [{"name": f"{HOSTILE}.a", "dimension": 100 + i, "owner": owner} for i, owner in enumerate(owners)]
    with run.events.open("a") as file:
        note = {"t_s": 1.5, "event": "plan", "rank": 0, "step": 1, "factors": factors, "groups": [2, 2]}
        file.write(json.dumps(note) + "\n")
    html, _ = run_report(load(run.path))
    Page(html)
    section = html.partition("K-FAC factor assignment")[2].partition("</table>")[0]
    assert "4 factors, sent in 2 groups" in section
    found = " ".join(re.sub(r"<[^>]*>", " ", section).split())
    assert found.endswith("every worker 1 101 101 rank 0 1 103 103 rank 1 2 102 202")
