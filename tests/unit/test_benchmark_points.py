"""Points of benchmarks: what is kept of them, on which machine, by which code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.benchmarks import document
from experiments.benchmarks import registry as tables
from experiments.benchmarks.simulator import simulator
from experiments.benchmarks.system import start_up
from experiments.common import harness
from experiments.common import tables as intervals
from experiments.common import whole_run as own_run
from experiments.common.harness import Point, Results
from testbed.analysis.simulator.model.constants import Constants
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.machine.clone import CLONE
from testbed.orchestrator.terminal.display import Display

POINT = Point({"rate_bit_s": 1e6}, 1)
AMONG_MEASURED = """
import importlib, sys
import experiments.benchmarks.registry as tables
for name in tables.NAMES:
    for module in [one for one in sys.modules if one.startswith("experiments")]:
        del sys.modules[module]
    assert importlib.import_module("experiments.common.sources").benchmark(name).measure, name
"""
"""Each of them first of `experiments`, as in the process that measures a point; all else is imported but once."""


def measured(others_cores: float, *, disturbed: bool) -> dict[str, Any]:
    return {"others_cores": others_cores, "is_disturbed": disturbed, "result": {}}


def machine(kernel: str) -> dict[str, Any]:
    return {"kernel": kernel, "cpu": "a processor", "cores": 2, "memory_bytes": 2**34}


def test_each_benchmark_can_be_the_first_that_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AMONG_MEASURED], cwd=CLONE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_run_whose_start_is_timed_can_be_made(tmp_path: Path) -> None:
    spec = resolve(["topo=lan", "workers=2", "dilation=1"]).spec
    run = own_run.directory(tmp_path, spec, "start_up")
    with Display(spec, quiet=True) as display:
        noted = start_up.Noted(run, spec, display, 0.0)
    noted.recorder.close()
    noted._exporter.close()
    assert noted.stages_s == {}


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ((0.01, False), (0.02, False), 0.02),
        ((0.30, True), (0.50, False), 0.50),
        ((0.05, False), (0.04, True), 0.05),
        ((0.30, True), (0.50, True), 0.30),
        ((0.50, True), (0.30, True), 0.30),
    ],
)
def test_a_measurement_gives_way_to_a_less_disturbed_one_alone(
    before: tuple[float, bool], after: tuple[float, bool], kept: float, tmp_path: Path
) -> None:
    results = Results(tmp_path, "accuracy")
    assert results.keep(POINT, "code", measured(before[0], disturbed=before[1]))
    assert results.keep(POINT, "code", measured(after[0], disturbed=after[1])) == (kept == after[0])
    (found,) = Results(tmp_path, "accuracy").found()
    assert found["others_cores"] == kept
    assert results.keep(POINT, "newer code", measured(0.9, disturbed=True))


def test_a_point_names_the_machine_that_has_measured_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"asked": {"rate_bit_s": 9e6}, "code_hash": "code", "measured_at": "2026-11-21T00:00:00+00:00"}
    written = {"benchmark": "accuracy", "machine": machine("old"), "points": [{**old, **measured(0, disturbed=False)}]}
    (tmp_path / "accuracy.json").write_text(json.dumps(written))
    monkeypatch.setattr(harness, "machine", lambda: machine("new"))
    Results(tmp_path, "accuracy").keep(POINT, "code", measured(0, disturbed=False))
    monkeypatch.setattr(harness, "machine", lambda: machine("of the tables"))
    again = Results(tmp_path, "accuracy")
    again.save()
    found = list(Results(tmp_path, "accuracy").found())
    assert {point["asked"]["rate_bit_s"]: point["machine"]["kernel"] for point in found} == {9e6: "old", 1e6: "new"}


def of_machine(kernel: str, day: str, *, disturbed: bool = False) -> dict[str, Any]:
    asked = {"kind": "none", "workers": 4}
    at = {"measured_at": f"{day}T00:00:00+00:00", "machine": machine(kernel), "code_hash": "older"}
    return {"asked": asked, **at, **measured(0, disturbed=disturbed)}


def test_a_page_has_a_line_for_each_machine_that_has_measured_points_of_it() -> None:
    points = [
        of_machine("b", "2026-11-22"),
        of_machine("a", "2026-11-20"),
        of_machine("b", "2026-11-21", disturbed=True),
    ]
    first, second = document.machines({"study_scale": points}).split("\n\n")
    assert first.startswith(
        "2 cores (a processor), 16.0 GiB, Linux a, shaper -; measured 2026-11-20 to 2026-11-20. 1 p"
    )
    assert "Linux b, shaper -; measured 2026-11-21 to 2026-11-22. 2 points, 1 of them disturbed" in second
    assert second.endswith("2 measured with older code than this.")
    assert document.machines({"study_scale": []}) == "Not measured yet."


def test_the_pages_name_the_machines_of_the_points_that_are_kept() -> None:
    for page in {document.PAGE, *document.ELSEWHERE.values()}:
        names = [name for name in tables.NAMES if document.ELSEWHERE.get(name, document.PAGE) == page]
        found = [point for name in names for point in Results(harness.FOLDER / "results", name).found()]
        _, region, _ = re.split("<!-- machine: (?:begin|end) -->", page.read_text())
        kernels = re.findall(r"Linux (\S+), shaper", region)
        assert sorted(kernels) == sorted({point["machine"]["kernel"] for point in found}), page


def test_constants_name_the_machines_of_the_points_they_were_fitted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def point(role: str, kernel: str) -> dict[str, Any]:
        asked = {"run": f"topo={kernel}", "role": role}
        return {"asked": asked, "result": {"verdict": "valid"}, "measured_at": "then", "machine": machine(kernel)}

    monkeypatch.setattr(simulator, "emulated", lambda found: found)
    monkeypatch.setattr(simulator.calibration, "fit", lambda runs: Constants())
    monkeypatch.setattr(simulator.calibration, "validate", lambda constants, runs: None)
    points = [point("calibration", "a"), point("calibration", "a"), point("validation", "b")]
    origin = simulator.calibrated(points).provenance
    assert [made["kernel"] for made in origin["machines"]] == ["a", "b"]


PREDICTED = {"simulator.json", "steps.py", "paths.py", "profile.py", "collective.py"}


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("simulator", {"simulator.py", "whole_run.py", "step_plan.py", "loop.py", "topk.py"}),
        ("gaps", {"tap.py", "tc.py", "network.py"}),
        ("set_up", {"runc_container.py"}),
        ("monitor", {"collector.py", "background.py", "star.py"}),
        ("observation", {"collector.py", "recorder.py", "exporter.py"}),
        ("netem", {"netem_inside.py", "offered.py", "mininet_tclink.py"}),
        *(
            (name, PREDICTED)
            for name in ("study_scale", "study_compressors", "grace", "kfac", "large_batch", "low_rank")
        ),
    ],
)
def test_figures_depend_on_what_measures_or_predicts_them(name: str, files: set[str]) -> None:
    point = harness.points_of(name)[0]
    assert files <= {path.name for path in harness.files_of(name, point.asked)}
    assert len(harness.code_hash(name, point.asked)) == 16


def test_a_constant_counts_and_a_comment_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "CLONE", tmp_path)
    texts = {"a.json": ('{"goodput": 0.9}', '{"goodput": 0.8}'), "a.py": ("a = 1  # why", "a = 1")}
    hashes = []
    for name, versions in texts.items():
        for text in versions:
            (tmp_path / name).write_text(text)
            harness.hash_of.cache_clear()
            hashes.append(harness.hash_of((tmp_path / name,)))
    assert hashes[0] != hashes[1] and hashes[2] == hashes[3]


def test_the_interval_of_many_values_is_as_narrow_as_they_allow() -> None:
    values = [0.0, 1.0] * 8
    # t of 15 degrees of freedom, 2.1314, times the deviation 0.5164, over 4
    assert intervals.half_width(values) == pytest.approx(0.2752, abs=1e-4)
