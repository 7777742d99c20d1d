"""Whole runs of real workers over gloo on loopback."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import pytest
import torch

from compressors.base.compressor import Layout, Route, choose_route
from compressors.base.feedback import with_feedback
from experiments.benchmarks.learning.lockstep_training import LockstepTraining
from testbed.core.record.events.run import PHASES
from testbed.core.spec.run_spec import RunSpec
from testbed.core.units import parse_size_bytes
from testbed.worker.interfaces.workload import parameters_crc32
from testbed.worker.reduction.fusion import grouped
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import COMPRESSORS, make_spec, run
from tests.distributed.slow_evaluation import STEPS

TARGETS = dict.fromkeys(COMPRESSORS, 0.9) | {"none": 0.95, "topk": 0.7}
"""Of the small model; of one entry in a hundred only every second would be enough."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # as workers have, so that sums are taken in the same order


@pytest.mark.tier("test")
def test_ddp_equals_torchs(tmp_path: Path) -> None:
    losses = []
    for strategy in ("ddp", "torch_ddp"):
        (tmp_path / strategy).mkdir()
        outcome = run(make_spec(strategy, workers=4, steps=50), tmp_path / strategy)
        assert set(outcome.status.values()) == {0}
        (model,) = outcome.of("model")
        sent = [sum(step) for step in zip(*(outcome.payloads(rank) for rank in range(4)), strict=True)]
        assert sent == [model["dense_bytes_step"]] * 50
        assert model["routes"] == (None if strategy == "torch_ddp" else ["reduce_sum"] * 4)
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
    spec = make_spec(compressor=compressor, workers=3, steps=45, evaluate_every=20)
    outcome = run(spec, tmp_path)
    short = run(make_spec(compressor=compressor, workers=3, steps=6), tmp_path / "short")
    for rank in range(3):
        assert short.losses(rank) == outcome.losses(rank)[:6]
        assert short.payloads(rank) == outcome.payloads(rank)[:6]
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1
    assert [e["step"] for e in outcome.of("evaluation")] == [20, 40, 45]
    assert outcome.of("evaluation")[-1]["value"] >= TARGETS[compressor]
    built = build_parts(spec)
    sent = sum(payload for rank in range(3) for payload in outcome.payloads(rank))
    if built.compressor.traits.fixed_size:
        assert sent == 45 * _declared_bytes(spec)
    (model,) = outcome.of("model")
    assert model["routes"] == _routes(spec)
    assert 0 < sent <= 45 * model["dense_bytes_step"]
    assert compressor == "none" or sent < 0.6 * 45 * model["dense_bytes_step"]


@pytest.mark.parametrize("route", ["gather", "two_shot"])
@pytest.mark.parametrize("compressor", ["topk", "sz3", "int8"])
def test_both_routes_of_payloads_that_are_not_summed(compressor: str, route: str, tmp_path: Path) -> None:
    # 3 ranks: no bucket divides by 3, so parts are of unequal size
    params = {"density": 0.1} if compressor == "topk" else {}
    spec = make_spec(compressor=compressor, workers=3, steps=20, route=route, compressor_params=params)
    assert set(_routes(spec)) == {route}
    outcome = run(spec, tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1
    means = [sum(losses) / 3 for losses in zip(*(outcome.losses(rank) for rank in range(3)), strict=True)]
    assert means[-1] < 0.8 * means[0]
    built = build_parts(spec)
    if built.compressor.traits.fixed_size:
        assert sum(sum(outcome.payloads(rank)) for rank in range(3)) == 20 * _declared_bytes(spec)


def _layouts(spec: RunSpec) -> list[Layout]:
    groups = grouped(
        build_parts(spec).workload.model(0).parameters(), parse_size_bytes(spec.strategy.params["bucket_size"])
    )
    return [Layout(tuple(tuple(p.shape) for p in group), index) for index, group in enumerate(groups)]


def _routes(spec: RunSpec) -> list[str]:
    codec = with_feedback(build_parts(spec).compressor)
    alpha_s, beta_s_byte = spec.topology.slowest_hop
    return [
        choose_route(codec, layout, spec.workers, alpha_s=alpha_s, beta_s_byte=beta_s_byte).value
        for layout in _layouts(spec)
    ]


def _declared_bytes(spec: RunSpec) -> int:
    codec = with_feedback(build_parts(spec).compressor)
    pairs = zip(_layouts(spec), _routes(spec), strict=True)
    return sum(codec.sent_bytes(layout, spec.workers, Route(route)) for layout, route in pairs)


@pytest.mark.parametrize(("compressor", "tolerance"), [("topk", 0.0), ("powersgd", 1e-4)])
def test_ranks_in_one_process_learn_as_real_ones_do(compressor: str, tolerance: float, tmp_path: Path) -> None:
    """The campaign on accuracy rests on this. Sums of three floats depend on their order, gathered payloads do not."""
    spec = make_spec(compressor=compressor, workers=3, steps=12, workload="digits")  # whose buckets both have
    outcome = run(spec, tmp_path)
    ours = LockstepTraining(
        build_parts(spec).workload,
        lambda: build_parts(spec).compressor,
        spec.topology,
        seed=spec.seed,
        batch_size=spec.batch_size,
        steps=spec.steps or 0,
    )
    means = [ours.step() for _ in range(spec.steps or 0)]
    theirs = [sum(losses) / 3 for losses in zip(*(outcome.losses(rank) for rank in range(3)), strict=True)]
    assert means == pytest.approx(theirs, rel=tolerance, abs=1e-12)
    assert ours.sent_bytes == sum(sum(outcome.payloads(rank)) for rank in range(3))


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
        outside_s = []
        for event in steps:
            phase_s = event["phase_s"]
            assert set(phase_s) == set(PHASES)
            assert all(seconds > 0 for seconds in phase_s.values()), phase_s
            busy_s = sum(seconds for name, seconds in phase_s.items() if name != "communicate")
            outside_s.append(event["step_s"] - busy_s)
            assert event["samples"] == 32
        # of one step more may lie outside, where the machine's other work came between two readings of the clock
        assert min(outside_s) > -1e-3 and statistics.median(outside_s) < 1e-3, outside_s
        assert sum(e["step_s"] for e in steps) <= steps[-1]["t_s"] + 1e-3
        (start,) = outcome.of("start", rank)
        assert 0 <= start["late_s"] == start["t_s"] <= steps[0]["t_s"] - steps[0]["step_s"] + 1e-3
        (done,) = outcome.of("done", rank)
        assert done["t_s"] >= steps[-1]["t_s"]
        assert done["finish_payload_bytes"] == 0 <= done["finish_s"] <= done["t_s"]


def test_dilation_slows_computing_and_divides_reported_time(tmp_path: Path) -> None:
    outcome = run(make_spec(workers=1, steps=10, dilation=8.0, workload="digits"), tmp_path)
    steps = outcome.of("step")
    assert len(steps) == 10 and all(event["cpu_s"] > 0 for event in steps)
    for event in steps:
        # However slow or fast the machine, computing takes as long as it takes CPU seconds: without pacing, an eighth
        # of them where the core is free.
        busy_s = sum(seconds for name, seconds in event["phase_s"].items() if name != "communicate")
        assert busy_s > max(event["cpu_s"] - 1e-3, event["cpu_s"] / 2)


def test_a_slow_evaluation_stalls_no_rank_and_none_is_lost(tmp_path: Path) -> None:
    workload = {"_target_": "tests.distributed.slow_evaluation.SlowEvaluation"}
    outcome = run(make_spec(workers=2, steps=STEPS, evaluate_every=3, workload_params=workload), tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    evaluations, steps = outcome.of("evaluation"), outcome.of("step", 0)
    assert [e["step"] for e in evaluations] == [3, 6, 9, 12]
    assert [e["t_s"] for e in evaluations] == [steps[e["step"] - 1]["t_s"] for e in evaluations]
    # none ended before the last step had begun
    told = [event["event"] for event in outcome.events if event["rank"] == 0]
    assert "evaluation" not in told[: told.index("step") + STEPS - 1] and told[-1] == "done"
    (tmp_path / "plain").mkdir()
    plain = run(make_spec(workers=2, steps=STEPS, evaluate_every=3, workload="digits"), tmp_path / "plain")
    assert [e["value"] for e in evaluations] == [e["value"] for e in plain.of("evaluation")]
    assert outcome.losses(1) == plain.losses(1)
