"""A replay through the real strategy, compressors and collectives."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.models.catalogue import find_model
from testbed.core.models.model import Layer, Model
from testbed.core.models.model_file import model_to_json
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import make_spec, part, run


def replay_spec(compressor: str = "none", workers: int = 2, **workload: Any) -> RunSpec:
    spec = make_spec(compressor=compressor, workers=workers, steps=3)
    return dataclasses.replace(spec, workload=part("workload", "replay", workload), device=part("device", "paced"))


@pytest.mark.parametrize("compressor", ["none", "topk"])
def test_a_model_is_replayed_with_its_exact_bytes(compressor: str, tmp_path: Path) -> None:
    outcome = run(replay_spec(compressor, model="resnet18"), tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    parameters = find_model("resnet18").parameters
    (model,) = outcome.of("model")
    assert model["parameters"] == parameters
    assert model["metric_name"] is None
    assert outcome.of("evaluation") == []
    for rank in range(2):
        assert outcome.losses(rank) == [None] * 3
        sent = outcome.payloads(rank)
        dense = 4 * parameters  # two ranks: each sends half of it, twice
        if compressor == "none":
            assert sent == [dense] * 3
        else:
            assert len(set(sent)) == 1 and 0.005 * dense < sent[0] < 0.05 * dense


@pytest.mark.parametrize("collective", ["gloo", "nccl_ring"])
def test_buffers_of_a_table_are_sent_by_rank_0_in_each_step(collective: str, tmp_path: Path) -> None:
    table, buffers_bytes, numel = tmp_path / "mine.json", 1_000_000, 50_000
    model = Model("mine", (Layer("a", ((numel,),), 1.0),), numel, None, "a sample", "a test", buffers_bytes)
    table.write_text(json.dumps(model_to_json(model)))
    asked = part("strategy", "ddp", {"collective": collective, "broadcast_buffers": True})
    outcome = run(dataclasses.replace(replay_spec(model=str(table)), strategy=asked), tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    sent = [outcome.payloads(rank) for rank in range(2)]
    assert [a + b for a, b in zip(*sent, strict=True)] == [2 * 4 * numel + buffers_bytes] * 3
    if collective == "nccl_ring":
        assert sent[1] == [4 * numel] * 3, "the last rank of the ring passes nothing on"


def test_a_processor_cannot_time_what_is_not_computed() -> None:
    spec = dataclasses.replace(replay_spec(model="resnet18"), device=part("device", "native"))
    with pytest.raises(InputError, match="device=native: workload=replay does no arithmetic"):
        build_parts(spec)


def test_torchs_own_data_parallel_takes_a_replay_too(tmp_path: Path) -> None:
    spec = dataclasses.replace(replay_spec(model="mobilenet_v2"), strategy=part("strategy", "torch_ddp"))
    outcome = run(spec, tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    assert outcome.payloads(0) == [4 * find_model("mobilenet_v2").parameters] * 3


def test_momenta_of_a_replay_are_bytes_alone(tmp_path: Path) -> None:
    """What takes turns is a quarter of the tensors of 9,000 elements and more; averages come after each second step."""
    slamb = part("strategy", "slamb", {"density": 0.25, "sync_every": 2})
    outcome = run(dataclasses.replace(replay_spec(model="resnet18"), strategy=slamb), tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    tensors = [math.prod(shape) for layer in find_model("resnet18").layers for shape in layer.shapes]
    whole = sum(size for size in tensors if size < 9000)
    momenta = [4 * (whole + (sum(tensors) - whole) / 4)] * 3
    averages = [0, 4 * sum(tensors), 0]
    for rank in range(2):
        expected = [a + b for a, b in zip(momenta, averages, strict=True)]
        assert outcome.payloads(rank) == pytest.approx(expected, rel=1e-3)
    assert {done["finish_payload_bytes"] for done in outcome.of("done")} == {4 * sum(tensors)}


@pytest.mark.tier("test")
def test_a_scaled_model_sends_so_many_times_less(tmp_path: Path) -> None:
    outcome = run(replay_spec(model="resnet50", scale=100), tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    assert outcome.payloads(0)[0] == pytest.approx(4 * find_model("resnet50").parameters / 100, rel=0.01)
