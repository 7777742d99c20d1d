"""Links between real ranks probed over gloo, and plans chosen: one answer for all, with all bytes counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.core.parallelism.comparison import plan_from_json
from testbed.core.parallelism.links import links_from_json
from tests.distributed.forked import Forked
from tests.distributed.harness import ROOT, outputs, port_of_ones_own

REGIONS = ("a", "a", "b")
P = len(REGIONS)
PAIRS = 3
"""There and back between the regions, and inside of one."""


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    script = Path(__file__).with_name("probing.py")
    with port_of_ones_own() as port:
        workers = [
            Forked(script, [str(rank), str(port), *REGIONS], environment={"PYTHONPATH": str(ROOT)}, cwd=ROOT)
            for rank in range(P)
        ]
        return [json.loads(out) for out in outputs(workers)]


def test_all_ranks_agree_on_what_was_found(ranks: list[dict[str, Any]]) -> None:
    notes = [rank["probe"] for rank in ranks]
    assert notes == notes[:1] * P
    links = links_from_json(notes[0])
    assert links.regions == REGIONS
    assert notes[0]["pairs"] == PAIRS
    assert all(links.rate_bit_s[i][j] > 0 for i in range(P) for j in range(P) if i != j)


def test_every_byte_of_a_probe_is_counted(ranks: list[dict[str, Any]]) -> None:
    agreeing = 2 * (P - 1) * 8 * (P * P * 2 + 1) + 2 * (P - 1) * 8
    sent = ranks[0]["probe"]["sent_bytes"]
    assert sum(rank["probe_bytes"] for rank in ranks) == sent + agreeing
    # of each pair at least: three of 256 KiB, of 32 KiB and of a byte
    assert sent >= PAIRS * 3 * (262_144 + 32_768 + 1)


def test_rank_0_measures_and_all_have_its_plan(ranks: list[dict[str, Any]]) -> None:
    assert [rank["measured_on"] for rank in ranks] == [[0, 0, 0], [], []]
    decisions = [rank["decisions"] for rank in ranks]
    assert decisions == decisions[:1] * P
    (_, auto, notes), (_, replicas, others) = decisions[0]
    assert [note["event"] for note in notes] == ["link_probe", "chosen_plan"]
    assert repr(plan_from_json(notes[1])) == auto
    assert sum(notes[1]["parts_s"].values()) == pytest.approx(notes[1]["predicted_s"])
    assert plan_from_json(others[1]).dp == P
    assert "dp=3" in replicas


def test_where_no_plan_fits_all_ranks_end_with_the_reasons(ranks: list[dict[str, Any]]) -> None:
    refusals = [rank["refusal"] for rank in ranks]
    assert refusals == refusals[:1] * P
    assert refusals[0][0] == "plan=auto: place 1 of the 0 plans that auto finds"
    assert any("has 1 B" in line for line in refusals[0])
