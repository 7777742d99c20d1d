"""The scan below a dilation that was found: which it tries, when it ends, and what the table makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.benchmarks.first_try_scan import tables
from experiments.benchmarks.first_try_scan.measure import scan


def test_it_falls_until_two_in_a_row_are_not_valid() -> None:
    tried = [
        (one["dilation"], one["verdict"])
        for one in scan(2.0, lambda k: {"verdict": "valid" if 1.5 < k < 1.7 else "invalid"})
    ]
    assert tried == [(1.786, "invalid"), (1.595, "valid"), (1.424, "invalid"), (1.271, "invalid")]


def test_it_ends_at_one() -> None:
    assert [one["dilation"] for one in scan(1.2, lambda _: {"verdict": "valid"})] == [1.071, 1.0]
    assert list(scan(1.0, lambda _: {"verdict": "valid"})) == []


@pytest.mark.parametrize(
    ("first", "scanned", "cells"),
    [
        ({"verdict": "valid", "dilation": 1.9}, [{"verdict": "valid", "dilation": 1.514}], ["1.514", "1.255"]),
        ({"verdict": "valid", "dilation": 2.0}, [{"verdict": "invalid", "dilation": 1.6}], ["2", "1.000"]),
        ({"verdict": "invalid", "dilation": 2.0}, [], ["-", "-"]),
        ({"verdict": "refused"}, [], ["-", "-"]),
    ],
)
def test_the_smallest_valid_dilation(first: dict[str, Any], scanned: list[dict[str, Any]], cells: list[str]) -> None:
    point = {"asked": {"overrides": "topo=a"}, "result": {"first": first, "scanned": scanned}, "is_disturbed": False}
    assert tables.first_try_scan([point]).splitlines()[-1].strip("| ").split(" | ")[-2:] == cells
