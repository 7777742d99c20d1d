"""Runs chosen by words; every fault of the words at once."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.orchestrator.run_store.filter import parse, started_unix_s
from testbed.orchestrator.run_store.listing import FIELDS

NOON_S = 1767268800.0
"""2026-01-01 12:00 UTC."""


def row(run_id: str = "20260101T113000Z-a", **values: Any) -> dict[str, Any]:
    words = {"topo": "wan1g", "compressor": "topk", "strategy": "ddp", "workload": "digits"}
    numbers = {"workers": 4, "seed": 0}
    return (
        dict.fromkeys(FIELDS) | {"run_id": run_id, "status": "completed", "verdict": "valid"} | words | numbers | values
    )


def takes(one: dict[str, Any], *words: str) -> bool:
    return parse("list", words, [one], now_s=NOON_S).takes(one)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["topo=wan1g"],
        ["compressor=int8,topk"],
        ["workers=4", "seed=0", "verdict=valid", "status=completed", "strategy=ddp", "workload=digits"],
        ["seed=00"],
        ["since=1800s"],
        ["since=30m"],
        ["since=0.5h"],
        ["since=7d"],
        ["since=2026-01-01"],
        ["since=2026-01-01T11:30"],
        ["since=2026-01-01T13:30+02:00"],
    ],
)
def test_all_of_these_take_it(words: list[str]) -> None:
    assert takes(row(), *words)


@pytest.mark.parametrize(
    "words",
    [
        ["topo=lan"],
        ["topo=wan1g", "compressor=none"],
        ["workers=8"],
        ["seed=1,2"],
        ["verdict=invalid,suspect"],
        ["status=running"],
        ["since=29m"],
        ["since=2026-01-02"],
        ["since=2026-01-01T11:31"],
        ["since=2026-01-01T11:30-01:00"],
    ],
)
def test_any_of_these_leaves_it_out(words: list[str]) -> None:
    assert not takes(row(), *words)


def test_what_cannot_be_read_is_taken_by_its_status_alone() -> None:
    damaged = dict.fromkeys(FIELDS) | {"run_id": "20260101T113000Z-a", "status": "damaged: summary.json is not JSON"}
    assert takes(damaged, "status=damaged,foreign")
    assert not takes(damaged, "topo=wan1g") and not takes(damaged, "verdict=valid")
    foreign = dict.fromkeys(FIELDS) | {"run_id": "notes", "status": "foreign: not a run id"}
    assert takes(foreign) and not takes(foreign, "since=2000-01-01")


def test_a_name_is_known_if_a_run_bears_it_or_could() -> None:
    assert takes(row(compressor="mine"), "compressor=mine,sz3")
    with pytest.raises(InputError, match="compressor=mine: unknown compressor"):
        parse("list", ["compressor=mine"], [row()])


def test_every_fault_at_once_with_what_is_known() -> None:
    words = ["topo=wan1gg", "verdict=good", "status=done", "workers=four", "seed=-1", "since=soon", "x", "colour=red"]
    with pytest.raises(InputError) as caught:
        parse("list", [*words, "topo=lan", "compressor="], [row()])
    faults = caught.value.faults
    assert len(faults) == len(words) + 2
    assert "did you mean wan1g?" in faults[0]
    assert faults[1] == "list verdict=good: unknown verdict; known: invalid, suspect, valid"
    assert "running" in faults[2] and "killed" in faults[2]
    assert "'four' is not a whole number" in faults[3] and "'-1' is not a whole number" in faults[4]
    assert "90s, 30m, 12h, 7d" in faults[5]
    assert "not of the form key=value; known keys: topo" in faults[6]
    assert "unknown key" in faults[7] and "since" in faults[7]
    assert "given twice" in faults[8]


def test_what_bears_no_time_never_began() -> None:
    assert started_unix_s("20260101T120000Z-x") == NOON_S
    assert not started_unix_s("20269999T120000Z-x") >= 0
