"""DeAR computes what synchronous data parallelism computes, bit for bit: the same sums in the same order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.worker.comm import Communicator
from testbed.worker.parts import build_parts
from testbed.worker.workload import parameters_crc32
from tests.distributed.harness import Outcome, make_spec, run
from tests.distributed.trainings import Answers, Case, parameters, play, train

STEPS = 7
ODD = {"_target_": "tests.distributed.odd_model.OddModel"}


def _both(folder: Path, compressor: str = "none", collective: str = "ring", **given: Any) -> tuple[Outcome, Outcome]:
    """(of ddp, of dear) of the same training."""
    outcomes = []
    params = {"collective": collective, "bucket_size": "256 KiB"} | given.pop("strategy_params", {})
    for strategy in ("ddp", "dear"):
        (folder / strategy).mkdir()
        spec = make_spec(strategy, compressor, strategy_params=params, **({"steps": STEPS} | given))
        outcome = run(spec, folder / strategy)
        assert set(outcome.status.values()) == {0}, outcome.of("fault")
        outcomes.append(outcome)
    return outcomes[0], outcomes[1]


def _sent(outcome: Outcome) -> int:
    """In all: a second half is sent in the step after its own."""
    return sum(e["payload_bytes"] for e in outcome.of("step")) + sum(
        e["finish_payload_bytes"] for e in outcome.of("done")
    )


def _same(ddp: Outcome, dear: Outcome, workers: int) -> None:
    for rank in range(workers):
        assert dear.losses(rank) == ddp.losses(rank)
    values = [[(e["step"], e["value"]) for e in outcome.of("evaluation")] for outcome in (ddp, dear)]
    assert values[0] == values[1]
    assert len({e["parameters_crc32"] for outcome in (ddp, dear) for e in outcome.of("done")}) == 1
    assert _sent(ddp) == _sent(dear)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_it_equals_ddp_with_the_same_ring(workers: int, tmp_path: Path) -> None:
    ddp, dear = _both(tmp_path, workers=workers, evaluate_every=3)
    assert [e["step"] for e in dear.of("evaluation")] == [3, 6, 7]
    _same(ddp, dear, workers)
    (model,) = dear.of("model")
    assert _sent(dear) == STEPS * model["dense_bytes_step"]


def test_it_equals_ddp_with_two_shots(tmp_path: Path) -> None:
    _same(*_both(tmp_path, workers=3, collective="two_shot"), workers=3)


@pytest.mark.parametrize("compressor", ["fp16", "int8", "powersgd", "dgc"])
def test_with_a_compressor_it_equals_ddp_with_the_same(compressor: str, tmp_path: Path) -> None:
    _same(*_both(tmp_path, compressor, workers=3), workers=3)


@pytest.mark.parametrize("bucket_size", ["1 B", "3 KiB"])
def test_an_odd_model_under_adam_with_a_schedule(bucket_size: str, tmp_path: Path) -> None:
    """Modules unused, called twice, now and then, out of order, or read without being called."""
    ddp, dear = _both(tmp_path, workers=2, workload_params=ODD, strategy_params={"bucket_size": bucket_size})
    _same(ddp, dear, 2)
    assert dear.losses(0)[-1] != dear.losses(0)[0]


@pytest.mark.parametrize("workers", [1, 2])
def test_micro_batches_are_summed_before_anything_is_sent(workers: int, tmp_path: Path) -> None:
    _same(*_both(tmp_path, workers=workers, strategy_params={"accumulate": 4}), workers)
    (tmp_path / "whole").mkdir()
    whole = run(make_spec("ddp", workers=workers, steps=STEPS), tmp_path / "whole")
    (tmp_path / "parts").mkdir()
    parts = run(make_spec("dear", workers=workers, steps=STEPS, strategy_params={"accumulate": 4}), tmp_path / "parts")
    assert _sent(parts) == _sent(whole)
    for rank in range(workers):
        assert parts.losses(rank) == pytest.approx(whole.losses(rank), rel=1e-4)


@pytest.mark.parametrize(("compressor", "workers"), [("none", 1), ("none", 3), ("int8", 3)])
def test_a_long_gradient_is_clipped_alike(compressor: str, workers: int, tmp_path: Path) -> None:
    """Lengths are summed in another order, part by part."""
    ddp, dear = _both(tmp_path, compressor, workers=workers, strategy_params={"clip_norm": 0.25})
    (tmp_path / "free").mkdir()
    free = run(make_spec("ddp", compressor, workers=workers, steps=STEPS), tmp_path / "free")
    for rank in range(workers):
        assert dear.losses(rank) == pytest.approx(ddp.losses(rank), rel=1e-5)
        assert dear.losses(rank)[-1] > 1.05 * free.losses(rank)[-1], "nothing was clipped"


@pytest.mark.parametrize(("compressor", "reason"), [("onebit_adam", "takes over the optimizer"), ("adaptive", "cost")])
def test_what_it_cannot_put_off_is_refused_by_name(compressor: str, reason: str, tmp_path: Path) -> None:
    outcome = run(make_spec("dear", compressor, workers=2), tmp_path)
    assert all(outcome.status.values())
    assert "strategy=dear" in outcome.logs[0] and reason in outcome.logs[0]


HIERARCHICAL = ("hierarchical", "hierarchical_two_shot")
"""Collectives; four ranks are two in each of two regions."""


@dataclass(frozen=True)
class _Group:
    ranks: int
    folder: Path
    answers: Answers


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> _Group:
    return _trained(2, _around(), tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> _Group:
    cases = _around()
    for name in HIERARCHICAL:
        cases += _pair(name, {"collective": name})
        cases += _pair(f"{name} adam", {"collective": name, "bucket_size": "3 KiB"}, workload_params=ODD)
        cases += _pair(f"{name} clipped", {"collective": name, "clip_norm": 0.25})
        cases += _pair(f"{name} int8", {"collective": name}, compressor="int8")
    return _trained(4, cases, tmp_path_factory.mktemp("four"))


@pytest.fixture(params=["two", "four"])
def group(request: pytest.FixtureRequest) -> _Group:
    found: _Group = request.getfixturevalue(request.param)
    return found


def _trained(ranks: int, cases: list[Case], folder: Path) -> _Group:
    return _Group(ranks, folder, play(cases, ranks, folder))


def _around() -> list[Case]:
    """With gloo's ring and with ours."""
    return [_case("ddp gloo", {"collective": "gloo"}), *_pair("ring", {"collective": "ring"})]


def _case(name: str, params: dict[str, Any], **given: Any) -> Case:
    settings = {"bucket_size": "256 KiB"} | params
    return Case(name=name, spec={"strategy": name.split()[0], "strategy_params": settings, "batch_size": 16} | given)


def _pair(name: str, params: dict[str, Any], **given: Any) -> list[Case]:
    return [_case(f"{strategy} {name}", params, **given) for strategy in ("ddp", "dear")]


def _apart(group: _Group, case: str, other: str) -> float:
    """How far the parameters of two trainings are from each other, where they differ most."""
    return float((parameters(group.folder, case) - parameters(group.folder, other)).abs().max())


def test_its_parameters_are_those_of_ddp_over_gloo(group: _Group) -> None:
    """Two numbers have one sum; of four, gloo adds some in another order."""
    assert _apart(group, "dear ring", "ddp ring") == 0.0
    assert _apart(group, "dear ring", "ddp gloo") <= (0.0 if group.ranks == 2 else 1e-6)
    assert all(torch.isfinite(parameters(group.folder, "dear ring")))


def test_ranks_together_are_one_with_all_their_samples(group: _Group) -> None:
    torch.set_num_threads(1)  # as workers have
    case = _case("dear alone", {}, batch_size=16 * group.ranks)
    one = train(case, Communicator(0, 1, timeout_s=1.0), group.folder)
    means = [
        sum(losses) / group.ranks
        for losses in zip(*(answer["dear ring"]["losses"] for answer in group.answers), strict=True)
    ]
    assert means == pytest.approx(one["losses"], rel=1e-6)
    assert _apart(group, "dear alone", "dear ring") <= 1e-6


@pytest.mark.parametrize("kind", ["", " adam", " int8"])
@pytest.mark.parametrize("collective", HIERARCHICAL)
def test_over_regions_it_equals_ddp_with_the_same_collective(collective: str, kind: str, four: _Group) -> None:
    ddp, dear = ([answer[f"{name} {collective}{kind}"] for answer in four.answers] for name in ("ddp", "dear"))
    for one, other in zip(ddp, dear, strict=True):
        assert one["losses"] == other["losses"]
    assert len({answer["crc32"] for answer in (*ddp, *dear)}) == 1
    assert sum(answer["sent"] for answer in ddp) == sum(answer["sent"] for answer in dear) > 0


@pytest.mark.parametrize("collective", HIERARCHICAL)
def test_over_regions_a_long_gradient_is_clipped_alike(collective: str, four: _Group) -> None:
    """Only leaders have parts to scale, by what all ranks agree on."""
    assert len({answer[f"dear {collective} clipped"]["crc32"] for answer in four.answers}) == 1
    assert _apart(four, f"dear {collective} clipped", f"ddp {collective} clipped") <= 1e-6
    assert _apart(four, f"dear {collective} clipped", f"dear {collective}") > 1e-3, "nothing was clipped"


@pytest.mark.parametrize("workload", [{}, ODD], ids=["momentum", "adam"])
def test_alone_it_is_plain_training(workload: dict[str, Any], tmp_path: Path) -> None:
    """Parameters that take no part in a step have a gradient of zero, as with all strategies that have buckets."""
    torch.set_num_threads(1)  # as workers have
    given = {"strategy": "dear", "workload_params": workload}
    alone = train(Case(name="alone", spec=given, end=STEPS), Communicator(0, 1, timeout_s=1.0), tmp_path)
    spec = make_spec(workers=1, **given)
    plain = build_parts(spec).workload
    model = plain.model(spec.seed)
    optimizer = plain.optimizer(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    losses = []
    for step in range(STEPS):
        batch = plain.batch(step, rank=0, world_size=1, batch_size=spec.batch_size, seed=spec.seed)
        optimizer.zero_grad(set_to_none=False)
        loss = plain.loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert alone["losses"] == losses
    assert alone["crc32"] == parameters_crc32(model)
