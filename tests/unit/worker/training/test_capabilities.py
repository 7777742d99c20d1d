"""What a strategy can do follows from its methods. One that lacks them is answered for; half of them are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from compressors.base.compressor import Compressor, Layout
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.worker.interfaces.strategy import Beside, ExtraWork, StepStats, Strategy, WorkerContext
from testbed.worker.interfaces.transform import Transform
from testbed.worker.interfaces.workload import Batch, Workload
from testbed.worker.interfaces.workload_capabilities import Sequential, split
from testbed.worker.model.pieces import Piece
from testbed.worker.strategies.hybrid import Hybrid
from testbed.worker.training import capabilities
from testbed.worker.training.parts import build_parts
from testbed.worker.transforms.none import Unchanged
from testbed.worker.workloads.digits import Digits
from tests.distributed.harness import STRATEGIES, make_spec
from tests.distributed.small_model import SmallModel

PACED = "testbed.core.device.Paced"
SMALL: dict[str, Any] = {"learning_rate": 0.1, "momentum": 0.0}


class Least(Strategy):
    """Has what every strategy must have."""

    def bind(self, context: WorkerContext) -> None:
        return

    def step(self, batch: Batch, step: int) -> StepStats:
        return StepStats(None)


class Half(Least):
    """Reduces buckets, and does not say by which routes."""

    def layouts(self) -> list[Layout]:
        return []


def _spec(strategy: type[Strategy]) -> RunSpec:
    return dataclasses.replace(make_spec(), strategy=Part("mine", f"{__name__}.{strategy.__name__}"))


def test_a_strategy_without_capabilities_is_one_that_averages_gradients_of_all_ranks() -> None:
    least = build_parts(_spec(Least)).strategy
    assert [capabilities.part(least, rank, 3) for rank in range(3)] == [(0, 3), (1, 3), (2, 3)]
    assert not capabilities.tolerates_loss_of(least, 1) and not capabilities.can_rejoin(least, 1)
    assert capabilities.first_step(least) == 0 and list(capabilities.batch_faults(least, 7, 3)) == []
    assert list(capabilities.layouts(least)) == [] and capabilities.extra_work(least) == ExtraWork()
    assert capabilities.routes(least) is None and capabilities.collectives(least) is None
    assert capabilities.dense_bytes_step(least, 12.0) == 12.0
    assert capabilities.takes_transform(least, at_once=False, keeps_parameters=False)
    capabilities.sync_parameters(least)
    capabilities.hand_over(least)


def test_what_lacks_a_declaration_does_not_train_on_an_accelerator() -> None:
    (fault,) = capabilities.accelerator_faults(build_parts(_spec(Least)).strategy)
    assert fault == "computes or sends in the host's memory; use a strategy that does neither, such as ddp"
    assert list(capabilities.accelerator_faults(build_parts(make_spec("torch_ddp")).strategy)) == []


def test_half_a_capability_is_refused_by_name() -> None:
    with pytest.raises(InputError) as caught:
        build_parts(_spec(Half))
    (fault,) = caught.value.faults
    assert fault == "strategy=mine: Half has layouts and lacks routes, collectives; Bucketed takes all"


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_strategy_of_the_tree_has_half_a_capability(name: str) -> None:
    assert list(capabilities.partial_capabilities(build_parts(make_spec(name, workers=4)).strategy)) == []


@pytest.mark.parametrize(
    ("strategy", "collective", "connections", "fault"),
    [
        ("ddp", "gloo", 3, ""),
        ("ddp", "nccl_ring", 8, ""),
        ("ddp", "gloo_ring", 1, ""),
        ("ddp", "gloo_ring", 2, "sends over one, as gloo does; use collective=gloo"),
        ("ddp", "nccl_ring", 3, "shares them among 2 channels; use an even number"),
        ("torch_ddp", "", 2, "by comm alone (sends_by_comm); leave it out"),
        ("parameter_server", "", 2, "by comm alone (sends_by_comm); leave it out"),
    ],
)
def test_connections_are_refused_where_messages_cannot_be_cut(
    strategy: str, collective: str, connections: int, fault: str
) -> None:
    params = {"collective": collective} if collective else {}
    spec = make_spec(strategy, workers=4, connections=connections, strategy_params=params)
    if not fault:
        build_parts(spec)
        return
    with pytest.raises(InputError) as caught:
        build_parts(spec)
    (line,) = caught.value.faults
    assert line.startswith(f"connections={connections}: ") and line.endswith(fault)


@pytest.mark.parametrize(
    ("strategy", "collective", "host_s", "fault"),
    [
        ("ddp", "gloo", {"collective": "7 ms"}, ""),
        ("ddp", "gloo_ring", {"collective": "7 ms", "segment": "0.9 ms"}, ""),
        ("ddp", "nccl_ring", {"segment": 9e-4}, ""),
        ("ddp", "gloo", {"segment": "0.9 ms"}, "or diloco with strategy.collective=nccl_ring or gloo_ring"),
        ("local_sgd", "", {"segment": "0.9 ms"}, "or diloco with strategy.collective=nccl_ring or gloo_ring"),
        ("parameter_server", "", {"collective": "7 ms"}, "in its steps, which could wait for it; leave it out"),
    ],
)
def test_a_host_s_time_is_refused_where_it_could_not_pass(
    strategy: str, collective: str, host_s: dict[str, Any], fault: str
) -> None:
    spec = make_spec(strategy, workers=4, strategy_params={"collective": collective} if collective else {})
    spec = dataclasses.replace(spec, device=Part("paced", PACED, {"step_s": 0.1, "host_s": host_s}))
    if not fault:
        assert dict(build_parts(spec).device.host_s) == host_s
        return
    with pytest.raises(InputError) as caught:
        build_parts(spec)
    (line,) = caught.value.faults
    assert line.startswith("device.host_s.") and line.endswith(fault)


def test_a_strategy_that_does_not_say_how_it_sends_has_neither_connections_nor_a_host_that_takes_its_time() -> None:
    paced = Part("paced", PACED, {"step_s": 0.1, "host_s": {"collective": 0.007}})
    with pytest.raises(InputError) as caught:
        build_parts(dataclasses.replace(_spec(Least), connections=2, device=paced))
    assert [fault.split(":")[0] for fault in caught.value.faults] == ["connections=2", "device.host_s.collective"]


@pytest.mark.parametrize(
    ("params", "starts"),
    [
        ({}, True),
        ({"dp": 1, "pp": 4}, False),
        ({"pp": 2, "tp": 2}, True),
        ({"pp": 4}, False),
        ({"plan": "auto"}, False),
    ],
)
def test_a_pipeline_alone_starts_no_collectives_in_its_steps(params: dict[str, Any], starts: bool) -> None:
    assert Hybrid(**params).starts_collectives(4) is starts


class HalfChange(Transform):
    """Would change the model, and does not say how."""

    def looks_after(self, step: int) -> bool:
        return True


def test_half_a_transform_is_refused_by_name() -> None:
    spec = dataclasses.replace(make_spec(), transform=Part("mine", f"{__name__}.HalfChange"))
    with pytest.raises(InputError) as caught:
        build_parts(spec)
    assert caught.value.faults == (
        "transform=mine: HalfChange has looks_after and lacks plan_after, switch, example; ModelSwitch takes all",
    )


def test_half_a_chain_is_refused_by_name() -> None:
    class Half(SmallModel):
        def pieces(self, model: torch.nn.Module) -> list[Piece]:
            return []

    (fault,) = capabilities.partial_capabilities(Half(**SMALL))
    assert fault == "Half has pieces and lacks inputs, loss_of; Sequential takes all"
    assert isinstance(Digits(), Sequential) and not isinstance(SmallModel(**SMALL), Sequential)


def test_an_attribute_that_is_called_like_a_method_is_none_of_a_capability() -> None:
    workload = SmallModel(**SMALL)
    workload.inputs = torch.zeros(3)  # type: ignore[attr-defined]
    assert list(capabilities.partial_capabilities(workload)) == []


def test_a_batch_is_split_by_its_tensors_where_the_workload_does_not_say_how() -> None:
    batch = (torch.arange(6), [torch.arange(12).view(6, 2)])
    first, second = split(SmallModel(**SMALL), batch, 2)
    assert torch.equal(first[0], torch.arange(3)) and torch.equal(second[1][0], torch.arange(6, 12).view(3, 2))
    assert split(SmallModel(**SMALL), "whole", 1) == ["whole"]
    with pytest.raises(TypeError, match="a batch of str cannot be split; its workload's `split` has to"):
        split(SmallModel(**SMALL), "whole", 2)


def test_a_transform_without_capabilities_leaves_the_model_and_its_optimizer() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert capabilities.begin(Unchanged(), model, 0) is None
    capabilities.example(Unchanged(), model)
    capabilities.attach(Unchanged(), model, optimizer)
    assert capabilities.undecayed(Unchanged(), model) == [] and capabilities.rate_factor(Unchanged(), 3) == 1.0
    assert capabilities.spared(Unchanged(), None) == {}
    assert capabilities.kept(Unchanged(), model).keys() == model.state_dict().keys()


def test_a_strategy_with_the_names_of_version_1_works_and_is_told_the_new_ones() -> None:
    with pytest.warns(FutureWarning, match="Old: faults is validate now, batch_faults is validate_batch now, outlives"):

        class Old(Least):
            uses_collectives = False
            draws = True

            def faults(self, compressor: Compressor, workload: Workload, world_size: int) -> Iterator[str]:
                yield from super().faults(compressor, workload, world_size)  # type: ignore[misc]
                yield f"no {world_size}"

            def batch_faults(self, batch_size: int, world_size: int) -> Iterator[str]:
                yield f"not {batch_size}"

            def outlives(self, rank: int) -> bool:
                return rank == 1

            def beside(self) -> ExtraWork:
                return Beside()

            def settle(self) -> None:
                self.settled = True

    old, nothing = Old(), Any
    assert list(old.validate(nothing, nothing, 3)) == ["no 3"]  # type: ignore[arg-type]
    assert list(capabilities.batch_faults(old, 7, 3)) == ["not 7"] and old.draws_batches
    assert capabilities.tolerates_loss_of(old, 1) and not capabilities.tolerates_loss_of(old, 0)
    capabilities.sync_parameters(old)
    assert old.settled
    with pytest.warns(FutureWarning, match="Beside is ExtraWork now"):
        assert isinstance(capabilities.extra_work(old), ExtraWork)
