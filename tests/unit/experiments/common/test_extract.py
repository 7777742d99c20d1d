"""A page shows chosen rows and columns of a table, and the CSV file beside it has all."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.benchmarks import document
from experiments.common.benchmark import RESULTS, find_benchmarks
from experiments.common.harness import Results
from experiments.common.tables import Extract, csv_text, extracted
from testbed.orchestrator.machine.clone import CLONE

TEXT = """Before.

**Fast links**

| name | s | note |
| --- | --- | --- |
| a | 1 | x \\| y |
| b | 2 | z |

**Slow links**

| name | s |
| --- | --- |
| c | 30 |

After."""
BENCHMARKS = {name: one for name, one in find_benchmarks().items() if one.extract}


def test_rows_and_columns_are_chosen_and_a_title_goes_with_its_table() -> None:
    shown = extracted(TEXT, "links", "docs/studies/page.md", Extract(lambda row: row["s"] == "2", heads=("name", "s")))
    assert shown == (
        "Before.\n\n**Fast links**\n\n| name | s |\n| --- | --- |\n| b | 2 |\n\nAfter.\n\n"
        "All rows: [links.csv](../tables/links.csv)."
    )


def test_rows_are_chosen_by_the_title_of_their_table_too() -> None:
    shown = extracted(TEXT, "links", "docs/page.md", Extract(lambda row: row["title"] == "Slow links"))
    assert "| c | 30 |" in shown and "Fast" not in shown and "(tables/links.csv)" in shown


def test_the_file_has_all_rows_of_all_tables() -> None:
    assert csv_text(TEXT) == "title,name,s,note\nFast links,a,1,x \\| y\nFast links,b,2,z\nSlow links,c,30,\n"


def test_a_head_that_is_there_twice_is_numbered() -> None:
    assert csv_text("| s | s |\n| --- | --- |\n| 1 | 2 |") == "s,s (2)\n1,2\n"


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_file_of_a_benchmark_has_what_was_measured(name: str) -> None:
    every = find_benchmarks()
    found = {each: Results(RESULTS, each).of(every[each].points())[0] for each in (name, *BENCHMARKS[name].beside)}
    path: Path = CLONE / "docs" / "tables" / f"{name}.csv"
    if found[name]:
        assert path.read_text() == csv_text(document.table_of(BENCHMARKS[name], found))
