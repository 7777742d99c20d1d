"""DeAR computes what synchronous data parallelism computes, bit for bit: the same sums in the same order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.worker.communication.communicator import Communicator
from testbed.worker.interfaces.workload import parameters_crc32
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import Outcome, make_spec, run
from tests.distributed.trainings import Answers, Case, parameters, play, train

STEPS = 7
ODD = {"_target_": "tests.distributed.odd_model.OddModel"}


def _both(folder: Path, workers: int, **given: Any) -> tuple[Outcome, Outcome]:
    """(of ddp, of dear) of the same training, by whole workers."""
    outcomes = []
    for strategy in ("ddp", "dear"):
        (folder / strategy).mkdir()
        params = {"collective": "ring", "bucket_size": "256 KiB"}
        outcome = run(make_spec(strategy, workers=workers, strategy_params=params, **given), folder / strategy)
        assert set(outcome.status.values()) == {0}, outcome.of("fault")
        outcomes.append(outcome)
    return outcomes[0], outcomes[1]


def _sent(outcome: Outcome) -> int:
    """In all: a second half is sent in the step after its own."""
    return sum(e["payload_bytes"] for e in outcome.of("step")) + sum(
        e["finish_payload_bytes"] for e in outcome.of("done")
    )


@pytest.mark.parametrize("workers", [1, 4])
def test_it_equals_ddp_with_the_same_ring(workers: int, tmp_path: Path) -> None:
    ddp, dear = _both(tmp_path, workers, steps=STEPS, evaluate_every=3)
    for rank in range(workers):
        assert dear.losses(rank) == ddp.losses(rank)
    values = [[(e["step"], e["value"]) for e in outcome.of("evaluation")] for outcome in (ddp, dear)]
    assert values[0] == values[1]
    assert [e["step"] for e in dear.of("evaluation")] == [3, 6, 7]
    assert len({e["parameters_crc32"] for outcome in (ddp, dear) for e in outcome.of("done")}) == 1
    (model,) = dear.of("model")
    assert _sent(ddp) == _sent(dear) == STEPS * model["dense_bytes_step"]


@pytest.mark.parametrize(("compressor", "reason"), [("onebit_adam", "takes over the optimizer"), ("adaptive", "cost")])
def test_what_it_cannot_put_off_is_refused_by_name(compressor: str, reason: str, tmp_path: Path) -> None:
    outcome = run(make_spec("dear", compressor, workers=2), tmp_path)
    assert all(outcome.status.values())
    assert "strategy=dear" in outcome.logs[0] and reason in outcome.logs[0]


COMPRESSORS = ("fp16", "int8", "powersgd", "dgc")
HIERARCHICAL = ("hierarchical", "hierarchical_two_shot")
"""Collectives; four ranks are two in each of two regions."""


@dataclass(frozen=True)
class _Group:
    ranks: int
    folder: Path
    answers: Answers

    def same(self, name: str) -> None:
        """`ddp` and `dear` of that name: losses, bytes and parameters are equal."""
        ddp, dear = ([answer[f"{strategy} {name}"] for answer in self.answers] for strategy in ("ddp", "dear"))
        for one, other in zip(ddp, dear, strict=True):
            assert one["losses"] == other["losses"]
        assert len({answer["crc32"] for answer in (*ddp, *dear)}) == 1
        assert sum(answer["sent"] for answer in ddp) == sum(answer["sent"] for answer in dear)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> _Group:
    torch.set_num_threads(1)  # as workers have
    folder = tmp_path_factory.mktemp("one")
    cases = [*_around(), *_pair("parts", {"accumulate": 4}), *_pair("clipped", {"clip_norm": 0.02})]
    return _Group(1, folder, [{case.name: train(case, Communicator(0, 1, timeout_s=1.0), folder) for case in cases}])


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> _Group:
    cases = [*_around(), *_pair("parts", {"accumulate": 4})]
    for bucket_size in ("1 B", "3 KiB"):
        cases += _pair(f"odd {bucket_size}", {"bucket_size": bucket_size}, workload_params=ODD)
    return _trained(2, cases, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> _Group:
    cases = [*_pair("ring", {}), *_pair("two_shot", {"collective": "two_shot"}), *_pair("clipped", {"clip_norm": 0.02})]
    cases += _pair("int8 clipped", {"clip_norm": 0.02}, compressor="int8")
    for compressor in COMPRESSORS:
        cases += _pair(compressor, {}, compressor=compressor)
    return _trained(3, cases, tmp_path_factory.mktemp("three"))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> _Group:
    cases = _around()
    for name in HIERARCHICAL:
        cases += _pair(name, {"collective": name})
        cases += _pair(f"{name} adam", {"collective": name, "bucket_size": "3 KiB"}, workload_params=ODD)
        cases += _pair(f"{name} clipped", {"collective": name, "clip_norm": 0.02})
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
    return [_case("ddp gloo", {"collective": "gloo"}), *_pair("ring", {})]


def _case(name: str, params: dict[str, Any], **given: Any) -> Case:
    settings = {"bucket_size": "256 KiB", "collective": "ring"} | params
    return Case(name=name, spec={"strategy": name.split()[0], "strategy_params": settings, "batch_size": 16} | given)


def _pair(name: str, params: dict[str, Any], **given: Any) -> list[Case]:
    return [_case(f"{strategy} {name}", params, **given) for strategy in ("ddp", "dear")]


def _apart(group: _Group, case: str, other: str) -> float:
    """How far the parameters of two trainings are from each other, where they differ most."""
    return float((parameters(group.folder, case) - parameters(group.folder, other)).abs().max())


@pytest.mark.parametrize("name", ["two_shot", *COMPRESSORS])
def test_with_two_shots_or_a_compressor_it_equals_ddp_with_the_same(name: str, three: _Group) -> None:
    three.same(name)


@pytest.mark.parametrize("bucket_size", ["1 B", "3 KiB"])
def test_an_odd_model_under_adam_with_a_schedule(bucket_size: str, two: _Group) -> None:
    """Modules unused, called twice, now and then, out of order, or read without being called."""
    two.same(f"odd {bucket_size}")
    losses = two.answers[0][f"dear odd {bucket_size}"]["losses"]
    assert losses[-1] != losses[0]


@pytest.mark.parametrize("some", ["one", "two"])
def test_micro_batches_are_summed_before_anything_is_sent(some: str, request: pytest.FixtureRequest) -> None:
    group: _Group = request.getfixturevalue(some)
    group.same("parts")
    for answer in group.answers:
        assert answer["dear parts"]["sent"] == answer["dear ring"]["sent"]
        assert answer["dear parts"]["losses"] == pytest.approx(answer["ddp ring"]["losses"], rel=1e-4)


@pytest.mark.parametrize(
    ("some", "name", "free"),
    [("one", "clipped", "ring"), ("three", "clipped", "ring"), ("three", "int8 clipped", "int8")],
)
def test_a_long_gradient_is_clipped_alike(some: str, name: str, free: str, request: pytest.FixtureRequest) -> None:
    """Lengths are summed in another order, part by part."""
    group: _Group = request.getfixturevalue(some)
    for answer in group.answers:
        losses = answer[f"dear {name}"]["losses"]
        assert losses == pytest.approx(answer[f"ddp {name}"]["losses"], rel=1e-5)
        assert losses[-1] > 1.05 * answer[f"ddp {free}"]["losses"][-1], "nothing was clipped"


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


@pytest.mark.tier("test")
@pytest.mark.parametrize("kind", ["", " adam", " int8"])
@pytest.mark.parametrize("collective", HIERARCHICAL)
def test_over_regions_it_equals_ddp_with_the_same_collective(collective: str, kind: str, four: _Group) -> None:
    four.same(f"{collective}{kind}")


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
