"""Tables and figures name the commits of the points that they show."""

from __future__ import annotations

from experiments.benchmarks import commits
from experiments.common.benchmark import RESULTS, find_benchmarks
from experiments.common.harness import Results
from testbed.orchestrator.machine.clone import CLONE


def point(day: str, commit: str | None) -> dict[str, str | None]:
    return {"measured_at": f"{day}T10:00:00+00:00", "commit": commit}


def test_a_benchmark_has_a_row_with_its_days_and_commits() -> None:
    older = {"measured_at": "2026-11-20T10:00:00+00:00"}
    found = {"b": [point("2026-12-02", 40 * "b" + "+"), point("2026-12-01", 40 * "a"), older], "a": [], "c": [older]}
    assert commits.text(found).splitlines() == [
        "benchmark,points,first measured,last measured,commits",
        "b,3,2026-11-20,2026-12-02,aaaaaaaaaaaa bbbbbbbbbbbb+ not recorded",
        "c,1,2026-11-20,2026-11-20,not recorded",
    ]


def test_the_table_is_as_it_would_be_written() -> None:
    found = {name: Results(RESULTS, name).of(one.points())[0] for name, one in find_benchmarks().items()}
    assert (CLONE / commits.TABLE).read_text() == commits.text(found), "run `make bench BENCH=--tables`"
