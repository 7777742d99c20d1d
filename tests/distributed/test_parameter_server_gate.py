"""A server and its clients with a gate and decoders, as real processes: all agree, whatever is compressed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from testbed.worker.methods.parameter_server.bounds.break_even import MEASURING, NO_GAIN, PAYS, PROBE
from testbed.worker.methods.parameter_server.messages.schema import Schema
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import make_spec
from tests.distributed.trainings import Answers, Case, play

ROUNDS, CLIENTS = 7, 2
SZ3 = {"bound": {"_target_": "testbed.worker.methods.parameter_server.bounds.baselines.Fixed"}, "local_steps": 1}
NEVER = {"_target_": "testbed.worker.methods.parameter_server.bounds.break_even.Gate", "margin": 1e-9, "probe_every": 3}
"""Whatever is measured, which differs from machine to machine."""
CASES: dict[str, dict[str, Any]] = {
    "one thread": SZ3,
    "decoders": {**SZ3, "decoders": 2},
    "gate": {**SZ3, "decoders": 2, "gate": NEVER},
    "measuring gate": {"local_steps": 1, "gate": True},
}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """A server and two clients."""
    torch.set_num_threads(1)
    cases = [
        Case(
            name=name,
            spec={"strategy": "parameter_server", "strategy_params": params, "compressor": "sz3", "evaluate_every": 2},
            end=ROUNDS,
        )
        for name, params in CASES.items()
    ]
    return play(cases, CLIENTS + 1, tmp_path_factory.mktemp("three"))


def _notes(answer: dict[str, Any], event: str) -> list[dict[str, Any]]:
    return [note for note in answer["notes"] if note["event"] == event]


@pytest.mark.parametrize("name", CASES)
def test_all_end_with_the_same_parameters_and_have_learned(name: str, three: Answers) -> None:
    assert len({answer[name]["crc32"] for answer in three}) == 1
    losses = [sum(step) for step in zip(*(answer[name]["losses"] for answer in three[1:]), strict=True)]
    assert losses[-1] < 0.97 * losses[0]


def test_decoders_change_no_bit(three: Answers) -> None:
    for answer in three:
        assert answer["decoders"]["crc32"] == answer["one thread"]["crc32"]
        assert answer["decoders"]["sent"] == answer["one thread"]["sent"]


def test_whoever_sends_decides_and_says_so(three: Answers) -> None:
    """Of the first message that is compressed nothing is taken; the server's first is lossless, and not asked about."""
    off = [NO_GAIN] * 2 + [PROBE] + [NO_GAIN] * 2
    for rank, answer in enumerate(three):
        notes = _notes(answer["gate"], "gate")
        assert [note["why"] for note in notes] == ([MEASURING] * 2 + off)[: len(notes)]
        assert {note["direction"] for note in notes} == {"up" if rank else "down"}
        first = ROUNDS - len(notes)
        assert [note["round"] for note in notes] == list(range(first, ROUNDS)) and first == (0 if rank else 1)
        assert all(note["raw_s"] > 0 and note["compressed_s"] > 0 for note in notes[2:])
        whys = {note["why"] for note in _notes(answer["measuring gate"], "gate")}
        assert MEASURING in whys <= {MEASURING, PAYS, NO_GAIN, PROBE}
    assert not any(_notes(answer["decoders"], "gate") for answer in three)


def test_what_is_skipped_is_sent_raw(three: Answers) -> None:
    rounds = _notes(three[0]["gate"], "round")
    schema = Schema.of(build_parts(make_spec(workers=CLIENTS + 1)).workload.model(0))
    raw = sum(4 * item.numel for item in schema.items)
    off = {note["round"] for note in _notes(three[1]["gate"], "gate") if not note["compress"]}
    assert off == {2, 3, 5, 6}
    for note in rounds:
        share = note["update_bytes"] / (CLIENTS * raw)
        assert share == 1 if note["round"] in off else share < 0.7
    down = {note["round"] for note in _notes(three[0]["gate"], "gate") if not note["compress"]}
    assert all((note["model_bytes"] == raw) == (note["round"] in down) for note in rounds[1:])
