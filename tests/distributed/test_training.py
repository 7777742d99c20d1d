"""Whole runs of real workers over gloo on loopback."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from compressors.base import Compressor, Layout, choose_route
from compressors.feedback import with_feedback
from testbed.core.telemetry import PHASES
from testbed.worker.buckets import assign
from testbed.worker.parts import build_parts
from testbed.worker.reducer import slowest_hop
from testbed.worker.workload import parameters_crc32
from tests.distributed.harness import COMPRESSORS, make_spec, run

TARGETS = dict.fromkeys(COMPRESSORS, 0.95) | {"none": 0.97}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # as workers have, so that sums are taken in the same order


def test_ddp_equals_torchs(tmp_path: Path) -> None:
    losses = []
    for strategy in ("ddp", "torch_ddp"):
        (tmp_path / strategy).mkdir()
        outcome = run(make_spec(strategy, workers=4, steps=50), tmp_path / strategy)
        assert set(outcome.status.values()) == {0}
        (model,) = outcome.of("model")
        sent = [sum(step) for step in zip(*(outcome.payloads(rank) for rank in range(4)), strict=True)]
        assert sent == [model["dense_bytes_step"]] * 50
        losses.append([loss for rank in range(4) for loss in outcome.losses(rank)])
    assert losses[0][0] > 2
    assert losses[0] == pytest.approx(losses[1], rel=1e-6, abs=1e-6)


def test_one_worker_equals_plain_training(tmp_path: Path) -> None:
    spec = make_spec(workers=1, steps=12, seed=3)
    outcome = run(spec, tmp_path)
    workload = build_parts(spec).workload
    model = workload.model(spec.seed)
    optimizer = workload.optimizer(model.parameters())
    losses = []
    for step in range(12):
        optimizer.zero_grad()
        batch = workload.batch(step, rank=0, world_size=1, batch_size=32, seed=3)
        loss = workload.loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert outcome.losses(0) == losses
    assert outcome.of("done")[0]["parameters_crc32"] == parameters_crc32(model)
    assert outcome.payloads(0) == [0] * 12
    assert [e["step"] for e in outcome.of("evaluation")] == [12]
    assert outcome.of("evaluation")[0]["value"] == workload.evaluate(model)


def test_three_workers_equal_one_with_three_times_the_batch(tmp_path: Path) -> None:
    (tmp_path / "three").mkdir()
    (tmp_path / "one").mkdir()
    three = run(make_spec(workers=3, steps=8, batch_size=16), tmp_path / "three")
    one = run(make_spec(workers=1, steps=8, batch_size=48), tmp_path / "one")
    means = [sum(losses) / 3 for losses in zip(*(three.losses(rank) for rank in range(3)), strict=True)]
    assert means == pytest.approx(one.losses(0), rel=1e-4)


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_every_compressor_trains_and_does_so_again(compressor: str, tmp_path: Path) -> None:
    (tmp_path / "short").mkdir()
    spec = make_spec(compressor=compressor, workers=4, steps=45, evaluate_every=20)
    outcome = run(spec, tmp_path)
    short = run(make_spec(compressor=compressor, workers=4, steps=6), tmp_path / "short")
    for rank in range(4):
        assert short.losses(rank) == outcome.losses(rank)[:6]
        assert short.payloads(rank) == outcome.payloads(rank)[:6]
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1
    assert [e["step"] for e in outcome.of("evaluation")] == [20, 40, 45]
    assert outcome.of("evaluation")[-1]["value"] >= TARGETS[compressor]
    built = build_parts(spec)
    sent = sum(payload for rank in range(4) for payload in outcome.payloads(rank))
    if built.compressor.traits.fixed_size:
        assert sent == 45 * _declared_bytes(built.compressor, built.workload.model(0))
    (model,) = outcome.of("model")
    assert 0 < sent <= 45 * model["dense_bytes_step"]
    assert compressor == "none" or sent < 0.6 * 45 * model["dense_bytes_step"]


def _declared_bytes(compressor: Compressor, model: torch.nn.Module) -> int:
    codec, total = with_feedback(compressor), 0
    alpha_s, beta_s_byte = slowest_hop(make_spec(workers=4).topology)
    for index, group in enumerate(assign(model.parameters(), 4 * 2**20)):
        layout = Layout(tuple(tuple(p.shape) for p in group), index)
        total += codec.sent_bytes(layout, 4, choose_route(codec, layout, 4, alpha_s=alpha_s, beta_s_byte=beta_s_byte))
    return total


def test_the_same_spec_twice_gives_the_same_run(tmp_path: Path) -> None:
    outcomes = []
    for attempt in ("first", "second"):
        (tmp_path / attempt).mkdir()
        # 3 ranks: sums that depend on their order would show. PowerSGD draws random numbers and keeps state.
        spec = make_spec(compressor="powersgd", workers=3, steps=6, seed=5)
        outcomes.append(run(spec, tmp_path / attempt))
    for rank in range(3):
        assert len(outcomes[0].losses(rank)) == 6
        assert outcomes[0].losses(rank) == outcomes[1].losses(rank)
        assert outcomes[0].payloads(rank) == outcomes[1].payloads(rank)
    assert outcomes[0].of("done")[0]["parameters_crc32"] == outcomes[1].of("done")[0]["parameters_crc32"]


def test_what_a_step_reports_adds_up(tmp_path: Path) -> None:
    outcome = run(make_spec(compressor="topk", workers=2, steps=10), tmp_path)
    for rank in range(2):
        steps = outcome.of("step", rank)
        assert [e["step"] for e in steps] == list(range(1, 11))
        assert all(later["t_s"] > earlier["t_s"] > 0 for earlier, later in itertools.pairwise(steps))
        for event in steps:
            phase_s = event["phase_s"]
            assert set(phase_s) == set(PHASES)
            assert all(seconds > 0 for seconds in phase_s.values()), phase_s
            busy_s = sum(seconds for name, seconds in phase_s.items() if name != "communicate")
            assert busy_s <= event["step_s"] + 1e-4
            assert event["samples"] == 32
        assert sum(e["step_s"] for e in steps) <= steps[-1]["t_s"] + 1e-3


def test_dilation_slows_computing_and_divides_reported_time(tmp_path: Path) -> None:
    seconds = {}
    for dilation in (1.0, 8.0):
        folder = tmp_path / str(dilation)
        folder.mkdir()
        outcome = run(make_spec(workers=1, steps=10, dilation=dilation), folder)
        backward = sorted(e["phase_s"]["backward"] for e in outcome.of("step"))
        seconds[dilation] = backward[5]
    # Without pacing the second would be an eighth of the first.
    assert seconds[8.0] > 0.4 * seconds[1.0]
