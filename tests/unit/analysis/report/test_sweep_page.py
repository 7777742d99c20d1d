"""The page of a sweep: boxes that show and hide what has a value of an axis."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.__main__ import main
from testbed.core.record.run_directory import RunDir
from tests.unit.analysis.compared import template, variant

HOSTILE = "<b>} body { display: none }</style><script>\"'"
_RULE = re.compile(r"body:not\(:has\((?P<boxes>[^)]*)\)\) :is\((?P<names>[^)]*)\) \{ display: none; \}")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return template(tmp_path_factory.mktemp("template"))


@pytest.fixture
def page(source: RunDir, runs: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two methods on two networks; both methods have one value of the second axis, and one has another."""
    points = []
    for number, (compressor, topo, shown) in enumerate(
        (("none", "wan", "none"), ("topk", "wan", HOSTILE), ("none", "us3", "none"), ("topk", "us3", HOSTILE))
    ):
        run = variant(source, runs, number, compressor=compressor, topo=topo)
        values = {"compressor": shown, "topo": topo, "steps": "60"}
        points.append({"values": values, "run_id": run.run_id, "state": "done"})
    question: dict[str, Any] = {"name": "made", "axes": ["compressor", "topo", "steps"], "points": points}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(question)))
    folder = runs / ".sweeps" / "made"
    assert main(["sweep", "--runs", str(runs), "--output", str(folder)]) == 0
    return (folder / "report.html").read_text()


def hidden(html: str, unchecked: Iterable[str]) -> set[str]:
    """Classes that are not shown with these boxes empty."""
    names: set[str] = set()
    for rule in _RULE.finditer(html):
        boxes = [box.removeprefix("#").removesuffix(":checked") for box in rule["boxes"].split(", ")]
        if all(box in set(unchecked) for box in boxes):
            names |= {name.removeprefix(".") for name in rule["names"].split(", ")}
    return names


def row(html: str, css_class: str) -> str:
    (found,) = re.findall(rf'<tr class="{css_class}">(.*?)</tr>', html, re.DOTALL)
    return str(found)


def test_there_is_a_box_for_each_value_of_the_axes_in_which_rows_differ(page: str) -> None:
    boxes = re.findall(r'<input type="checkbox" id="(axis-\d-\d)" checked> ([^<]*)</label>', page)
    assert [box for box, _ in boxes] == ["axis-0-0", "axis-0-1", "axis-1-0", "axis-1-1"]
    assert [words for _, words in boxes if "display" not in words] == ["none", "wan", "us3"]
    assert re.findall(r"<legend>([^<]*)</legend>", page) == ["compressor", "topo"]


def test_an_empty_box_hides_the_rows_and_runs_of_its_value_and_no_others(page: str) -> None:
    assert hidden(page, []) == set()
    rows = set(re.findall(r'<tr class="(row-\d)">', page))
    assert len(rows) == 4
    gone = hidden(page, ["axis-1-1"])
    assert {name for name in rows if "<td>us3</td>" in row(page, name)} == {name for name in gone if "row" in name}
    assert len({name for name in gone if name.startswith("row")}) == 2
    runs = [name for name in gone if name.startswith("run")]
    assert len(runs) == 2 and all("-us3-" in row(page, name) for name in runs)
    assert len(hidden(page, ["axis-0-0", "axis-1-1"]) & rows) == 3


def test_each_run_says_which_boxes_show_its_curves(page: str) -> None:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    told = json.loads(found[1])
    boxes = told["boxes"]
    assert sorted(boxes.values()) == [[[f"axis-0-{n}"], [f"axis-1-{m}"]] for n in (0, 1) for m in (0, 1)]
    drawn = {run for one in told["figures"] for trace in one["data"] for run in trace["meta"].get("run_ids", ())}
    assert drawn == set(boxes)


def test_what_a_value_says_is_never_markup_nor_style(page: str) -> None:
    assert HOSTILE not in page and page.count("</style>") == page.count("<style")
    assert page.count("<script") == page.count("</script>") == 3, "data of figures, Plotly.js packed, and one script"
    assert "&lt;b&gt;} body { display: none }&lt;/style&gt;&lt;script&gt;" in page
    style = page[page.index("<style>") : page.index("</style>")]
    assert "none }<" not in style and "body { display" not in style
    assert "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" in page and "script" not in style
