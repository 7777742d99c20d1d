"""Answers of strategies and transforms about capabilities, and for those that have not the capability.

Those of workloads are in `testbed.worker.interfaces.workload_capabilities`, since strategies ask for them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from compressors.base.compressor import Layout
from testbed.core.device.profile import Profile
from testbed.core.record.events.training import ModelChange
from testbed.core.spec.topology import Topology
from testbed.worker.interfaces import strategy_capabilities as can
from testbed.worker.interfaces import transform_capabilities as changes
from testbed.worker.interfaces.strategy import ExtraWork, Strategy
from testbed.worker.interfaces.transform import Transform, fitted
from testbed.worker.interfaces.workload import Batch, Workload
from testbed.worker.interfaces.workload_capabilities import Sequential
from testbed.worker.model.layers import layer_sizes

# Of strategies.


def place(strategy: Strategy, topology: Topology) -> None:
    if isinstance(strategy, can.Placed):
        strategy.place(topology)


def part(strategy: Strategy, rank: int, world_size: int) -> tuple[int, int] | None:
    """Return (index, number of parts) of the data that `rank` trains on, by default one part for each rank."""
    return strategy.part(rank, world_size) if isinstance(strategy, can.Sharded) else (rank, world_size)


def batch_faults(strategy: Strategy, batch_size: int, world_size: int) -> Iterator[str]:
    """Yield why a rank's batch cannot have that size, by default nothing."""
    if isinstance(strategy, can.BatchChecked):
        yield from strategy.validate_batch(batch_size, world_size)


def tolerates_loss_of(strategy: Strategy, rank: int) -> bool:
    """Return True if the others continue without `rank`, by default False."""
    return isinstance(strategy, can.FaultTolerant) and strategy.tolerates_loss_of(rank)


def can_rejoin(strategy: Strategy, rank: int) -> bool:
    """Return True if `rank` may come back, by default False."""
    return isinstance(strategy, can.Rejoining) and strategy.can_rejoin(rank)


def first_step(strategy: Strategy) -> int:
    """Return the step to begin with, by default 0."""
    return strategy.first_step() if isinstance(strategy, can.Rejoining) else 0


def sync_parameters(strategy: Strategy) -> None:
    """Have put-off updates done, by default none."""
    if isinstance(strategy, can.Deferred):
        strategy.sync_parameters()


def layouts(strategy: Strategy) -> Sequence[Layout]:
    """Return the layouts of the buckets that are reduced, by default none."""
    return strategy.layouts() if isinstance(strategy, can.Bucketed) else ()


def extra_work(strategy: Strategy) -> ExtraWork:
    """Return what is computed and sent besides, by default nothing."""
    return strategy.extra_work() if isinstance(strategy, can.Profiled) else ExtraWork()


def expected_work(strategy: Strategy, workload: Workload, batch_size: int) -> ExtraWork:
    """Return the additional work as far as it is known before anything runs, by default none."""
    return strategy.expected_work(workload, batch_size) if isinstance(strategy, can.ForeseesWork) else ExtraWork()


def dense_bytes_step(strategy: Strategy, ring_bytes: float) -> float:
    """Return the bytes that a step would send uncompressed, by default those of data parallelism by a ring."""
    return strategy.dense_bytes_step() if isinstance(strategy, can.Sized) else ring_bytes


def routes(strategy: Strategy) -> list[str] | None:
    """Return the route of each bucket, by default None: there are no buckets."""
    return strategy.routes() if isinstance(strategy, can.Bucketed) else None


def collectives(strategy: Strategy) -> list[str] | None:
    """Return what carries each bucket, by default None: there are no buckets."""
    return strategy.collectives() if isinstance(strategy, can.Bucketed) else None


def takes_transform(strategy: Strategy, *, at_once: bool, keeps_parameters: bool) -> bool:
    """Return True if the model may change, by default in any way."""
    if isinstance(strategy, can.ModelSwitchable):
        return strategy.takes_transform(at_once=at_once, keeps_parameters=keeps_parameters)
    return True


def hand_over(strategy: Strategy) -> None:
    """Have optimizers' state given to all ranks, by default no rank lacks any."""
    if isinstance(strategy, can.ModelSwitchable):
        strategy.hand_over()


def accelerator_faults(strategy: Strategy) -> Iterator[str]:
    """Yield why it cannot train on an accelerator, by default a line that refuses it."""
    if isinstance(strategy, can.AcceleratorReady):
        yield from strategy.validate_accelerator()
    else:
        yield "computes or sends in the host's memory; use a strategy that does neither, such as ddp"


def partial_capabilities(part: Strategy | Transform | Workload) -> Iterator[str]:
    """Yield a line for each capability of which the class has some methods and lacks others.

    Nothing would ask for those that it has.
    """
    several: tuple[type, ...] = (can.Rejoining, can.Bucketed, can.ModelSwitchable)
    if not isinstance(part, Strategy):
        several = (changes.ModelSwitch,) if isinstance(part, Transform) else (Sequential,)
    for capability in several:
        wanted = [name for name in vars(capability) if not name.startswith("_")]
        lacking = [name for name in wanted if not hasattr(type(part), name)]
        if lacking and len(lacking) < len(wanted):
            has = ", ".join(name for name in wanted if name not in lacking)
            yield f"{type(part).__name__} has {has} and lacks {', '.join(lacking)}; {capability.__name__} takes all"


# Of transforms.


def begin(transform: Transform, model: nn.Module, seed: int) -> ModelChange | None:
    """Have the model changed before the run, by default not; return the event, None if nothing has changed."""
    return transform.begin(model, seed) if isinstance(transform, changes.InitialChange) else None


def example(transform: Transform, model: nn.Module) -> None:
    """Give `model` the layers that it is expected to have in the end, by default those that it has."""
    if isinstance(transform, changes.ModelSwitch):
        transform.example(model)


def profile_after(transform: Transform, profile: Profile, model: nn.Module) -> Profile:
    """Return the times of a changed model, by default in proportion to the parameters of its layers."""
    if isinstance(transform, changes.Retimed):
        return transform.profile_after(profile, model)
    return fitted(profile, layer_sizes(model))


def attach(transform: Transform, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Have an optimizer see more than the loss's gradients, by default nothing more."""
    if isinstance(transform, changes.OptimizerHook):
        transform.attach(model, optimizer)


def undecayed(transform: Transform, model: nn.Module) -> list[str]:
    """Return the names of parameters without ordinary weight decay, by default none."""
    return transform.undecayed(model) if isinstance(transform, changes.DecayExempt) else []


def rate_factor(transform: Transform, step: int) -> float:
    """Return the factor of the learning rate in step `step`, by default 1."""
    return transform.rate_factor(step) if isinstance(transform, changes.RateChange) else 1.0


def spared(transform: Transform, batch: Batch) -> Mapping[str, float]:
    """Return the share of samples that layers do not compute, by default none."""
    return transform.spared(batch) if isinstance(transform, changes.PartialForward) else {}


def kept(transform: Transform, model: nn.Module) -> Mapping[str, Any]:
    """Return the state of a model as another run may begin with it, by default its own."""
    return transform.kept(model) if isinstance(transform, changes.KeptAsOther) else model.state_dict()
