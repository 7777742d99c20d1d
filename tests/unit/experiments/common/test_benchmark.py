"""Benchmarks: found by folder, each with points, a page that has room for its table, and a figure that a page shows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.benchmarks.truth.foretold import FILE
from experiments.common.benchmark import Benchmark, find_benchmarks
from testbed.orchestrator.machine.clone import CLONE

BENCHMARKS = find_benchmarks()
AMONG_MEASURED = """
import importlib, sys
for name in sys.argv[1:]:
    for module in [one for one in sys.modules if one.startswith("experiments")]:
        del sys.modules[module]
    assert importlib.import_module(f"experiments.benchmarks.{name}.measure").measure, name
"""
"""Each of them first of `experiments`, as in the process that measures a point; all else is imported but once."""
PLANTED = {
    "measure.py": """
from experiments.common.benchmark import Point

def points(*, quick):
    return [Point({"sides": 6}, 1.0)]

def measure(sides):
    return {"corners": sides}
""",
    "tables.py": """
def planted(points, beside):
    return f"corners: {points[0]['result']['corners']}, beside {len(beside)}"

def draw(points):
    return "<svg/>"
""",
    "declaration.py": """
from experiments.benchmarks.planted import measure, tables
from experiments.common.benchmark import Benchmark, Figure

figure = Figure("docs/planted.svg", tables.draw)
BENCHMARK = Benchmark(measure, tables.planted, 5, page="docs/polygons.md", figure=figure, beside=("loss",))
""",
}
WRITE = """
from experiments.benchmarks import document
from experiments.common.benchmark import RESULTS, find_benchmarks
from experiments.common.harness import Results, code_hash, files_of

found = find_benchmarks()
planted = found["planted"]
(point,) = planted.points()
assert {path.name for path in files_of(planted, point.asked)} > {"measure.py", "testnet.py"}
results = {name: Results(RESULTS, name) for name in found}
result = {"others_cores": 0.0, "is_disturbed": False, "result": planted.measure.measure(**point.asked)}
results["planted"].keep(point, code_hash(planted, point.asked), result)
document.write(found, results)
print(*found)
"""


def test_each_benchmark_can_be_the_first_that_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AMONG_MEASURED, *BENCHMARKS], cwd=CLONE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_new_folder_is_found_with_its_table_page_and_figure_and_nothing_else_is_edited(tmp_path: Path) -> None:
    def copied(path: str) -> None:
        shutil.copytree(CLONE / path, tmp_path / path, ignore=shutil.ignore_patterns("__pycache__", "results"))

    for path in ("testbed", "topologies", "experiments/common", "experiments/calibration", "experiments/conf"):
        copied(path)
    copied("experiments/benchmarks/loss")
    for name in ("document.py", "commits.py", "__main__.py"):
        shutil.copy(CLONE / "experiments" / "benchmarks" / name, tmp_path / "experiments" / "benchmarks")
    folder = tmp_path / "experiments" / "benchmarks" / "planted"
    folder.mkdir()
    for name, text in PLANTED.items():
        (folder / name).write_text(text)
    docs = tmp_path / "docs"
    docs.mkdir()
    for page, region in (("benchmarks.md", "loss"), ("polygons.md", "planted")):
        names = (region, "machine")
        (docs / page).write_text("".join(f"<!-- {name}: begin -->\n<!-- {name}: end -->\n" for name in names))

    done = subprocess.run([sys.executable, "-c", WRITE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["planted", "loss"], "by their order"
    text = (docs / "polygons.md").read_text()
    assert "<!-- planted: begin -->\ncorners: 6, beside 0\n<!-- planted: end -->" in text
    assert "1 points, 0 disturbed" in text and "0 from older code" in text
    assert (docs / "planted.svg").read_text() == "<svg/>"
    kept = json.loads((tmp_path / "experiments" / "benchmarks" / "results" / "planted.json").read_text())
    assert kept["benchmark"] == "planted" and kept["points"][0]["result"] == {"corners": 6}
    listed = subprocess.run(
        [sys.executable, "-m", "experiments.benchmarks", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "one of planted, loss" in listed.stdout


@pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=list(BENCHMARKS))
@pytest.mark.parametrize("quick", [True, False])
def test_every_benchmark_names_points_and_how_long_each_takes(benchmark: Benchmark, quick: bool) -> None:
    points = benchmark.points(quick=quick)
    assert points and all(one.seconds > 0 for one in points)
    assert len({one.key for one in points}) == len(points)


@pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=list(BENCHMARKS))
def test_its_pages_have_room_for_its_table_and_one_shows_its_figure(benchmark: Benchmark) -> None:
    texts = [(CLONE / page).read_text() for page in benchmark.pages]
    for name, text in [(benchmark.name, text) for text in texts] + [("machine", texts[0])]:
        assert text.count(f"<!-- {name}: begin -->") == text.count(f"<!-- {name}: end -->") == 1
    if benchmark.figure:
        assert any(f"figures/{Path(benchmark.figure.path).name}" in text for text in texts)


def test_each_folder_but_that_of_the_results_declares_one_benchmark() -> None:
    folder = CLONE / "experiments" / "benchmarks"
    found = {path.name for path in folder.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert found == set(BENCHMARKS)
    assert {path.stem for path in (folder / "results").glob("*.json")} - {FILE.stem} <= set(BENCHMARKS)
    assert all(set(one.beside) <= set(BENCHMARKS) for one in BENCHMARKS.values())
