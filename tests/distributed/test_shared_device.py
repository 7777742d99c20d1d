"""Ranks of an emulated run that share a device: they take turns, and learn and send what they do without one."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest

from testbed.core.spec.run_spec import RunSpec
from tests.distributed.harness import Outcome, make_spec, run

STAND_IN = Path(__file__).with_name("stand_in_device.py")
RANKS = 3
SPEC = make_spec("ddp", "topk", RANKS, steps=4, checkpoint="last", dilation=2.0)


def with_device(spec: RunSpec, folder: Path, devices: int) -> Outcome:
    folder.mkdir()
    return run(dataclasses.replace(spec, accelerator="cuda"), folder, script=STAND_IN, accelerators=devices)


def turns(outcome: Outcome) -> list[tuple[float, float, int, int]]:
    """(begin, end, number, rank) of each, as ranks had them."""
    found = []
    for rank, log in outcome.logs.items():
        told = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        for begin, end in zip(told[::2], told[1::2], strict=False):
            found.append((begin["take"], end["give"], begin["number"], rank))
    return sorted(found)


@pytest.mark.parametrize(
    ("strategy", "compressor", "collective"), [("ddp", "topk", "ring"), ("diloco", "int8", "gloo")]
)
def test_what_is_learnt_and_sent_is_that_of_the_processor(
    strategy: str, compressor: str, collective: str, tmp_path: Path
) -> None:
    spec = make_spec(strategy, compressor, 2, steps=4, checkpoint="last", strategy_params={"collective": collective})
    (tmp_path / "plain").mkdir()
    plain, shared = run(spec, tmp_path / "plain"), with_device(spec, tmp_path / "shared", 1)
    for rank in range(2):
        assert shared.losses(rank) == plain.losses(rank) and shared.payloads(rank) == plain.payloads(rank)
    assert [one["parameters_crc32"] for one in shared.of("done")] == [
        one["parameters_crc32"] for one in plain.of("done")
    ]


def test_one_rank_has_a_device_at_a_time_and_says_how_late_it_is(tmp_path: Path) -> None:
    outcome = with_device(SPEC, tmp_path / "two", 2)
    assert set(outcome.status.values()) == {0}
    for number in range(2):
        had = [one for one in turns(outcome) if one[2] == number]
        assert {rank for *_, rank in had} == {rank for rank in range(RANKS) if rank % 2 == number}, "round robin"
        assert all(end <= begin for (_, end, *_), (begin, *_) in itertools.pairwise(had)), "one at a time"
    for step in outcome.of("step"):
        assert step["late_s"] >= 0 and step["behind_s"] >= 0 and step["cpu_s"] > 0
        assert sum(step["phase_s"][name] for name in ("forward", "backward")) > 0


def test_a_rank_with_a_device_of_its_own_asks_for_no_turns(tmp_path: Path) -> None:
    outcome = with_device(SPEC, tmp_path / "three", RANKS)
    assert set(outcome.status.values()) == {0} and turns(outcome) == []
