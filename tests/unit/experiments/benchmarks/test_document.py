"""Pages of the benchmarks: which machines they name."""

from __future__ import annotations

import re
from typing import Any

from experiments.benchmarks import document
from experiments.common.benchmark import RESULTS, find_benchmarks, load
from experiments.common.harness import Results
from testbed.orchestrator.machine.clone import CLONE


def of_machine(kernel: str, day: str, *, disturbed: bool = False) -> dict[str, Any]:
    machine = {"kernel": kernel, "cpu": "a processor", "cores": 2, "memory_bytes": 2**34}
    at = {"measured_at": f"{day}T00:00:00+00:00", "machine": machine, "code_hash": "older"}
    measured = {"others_cores": 0, "is_disturbed": disturbed, "result": {}}
    return {"asked": {"kind": "none", "workers": 4}, **at, **measured}


def test_a_page_has_a_line_for_each_machine_that_has_measured_points_of_it() -> None:
    points = [
        of_machine("b", "2026-11-22"),
        of_machine("a", "2026-11-20"),
        of_machine("b", "2026-11-21", disturbed=True),
    ]
    benchmark = load("study_scale")
    first, second = document.machines([(benchmark, points)]).split("\n\n")
    assert first.startswith("2 cores (a processor), 16.0 GiB, Linux a, 2026-11-20: 1 points, 0 disturbed, ")
    assert "Linux b, 2026-11-21 to 2026-11-22: 2 points, 1 disturbed" in second
    assert second.endswith("2 from older code.")
    assert document.machines([(benchmark, [])]) == "Not measured yet."


def test_the_pages_name_the_machines_of_the_points_that_are_kept() -> None:
    benchmarks = find_benchmarks().values()
    for page in {one.page for one in benchmarks}:
        names = [one.name for one in benchmarks if one.page == page]
        found = [point for name in names for point in Results(RESULTS, name).found()]
        _, region, _ = re.split("<!-- machine: (?:begin|end) -->", (CLONE / page).read_text())
        machines = re.findall(r"cores \((.*)\), [\d.]+ GiB, Linux ([^\s,]+), ", region)
        kept = {(point["machine"]["cpu"], point["machine"]["kernel"]) for point in found}
        assert sorted(machines) == sorted(kept), page
