"""The four parts of a spec, built and checked together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from compressors.base.compressor import Compressor
from compressors.base.feedback import with_feedback
from compressors.none import Uncompressed
from testbed.core.costs.fusion import untimed_faults
from testbed.core.device.device import Device
from testbed.core.errors import InputError
from testbed.core.record.events.training import ModelChange
from testbed.core.spec.run_spec import CUDA, PROCESSOR, UNCOMPRESSED, RunSpec
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.interfaces.strategy import Agreement, Strategy
from testbed.worker.interfaces.strategy_capabilities import AcceleratorReady
from testbed.worker.interfaces.transform import Transform
from testbed.worker.interfaces.workload import Workload
from testbed.worker.model import checkpoint
from testbed.worker.plugins.factory import build, prefixed
from testbed.worker.training import capabilities
from testbed.worker.training.sending import accelerator_faults, own_messages_faults, sending_faults


@dataclass(frozen=True)
class Parts:
    workload: Workload
    strategy: Strategy
    compressor: Compressor
    device: Device
    transform: Transform

    def steps(self, spec: RunSpec) -> int:
        """Optimizer steps of the run."""
        if spec.epochs is None:
            return spec.steps or 0
        training = _training(self.strategy, spec)
        return math.ceil(spec.epochs * self.workload.samples() / (spec.batch_size * training))

    def epoch_steps(self, spec: RunSpec) -> int | None:
        """Optimizer steps of an epoch; None: the strategy has none."""
        training = _training(self.strategy, spec)
        return math.ceil(self.workload.samples() / (spec.batch_size * training)) if training else None


def changed_parts(spec: RunSpec, transform: Transform) -> Parts:
    """New ones for the model that `transform` leaves."""
    return dataclasses.replace(build_parts(spec_after(spec, transform)), transform=transform)


def spec_after(spec: RunSpec, transform: Transform) -> RunSpec:
    """What is asked of the model that `transform` leaves."""
    return spec if transform.compresses_after else dataclasses.replace(spec, compressor=UNCOMPRESSED)


KINDS: Mapping[str, type] = {
    "workload": Workload,
    "strategy": Strategy,
    "compressor": Compressor,
    "device": Device,
    "transform": Transform,
}


def build_parts(spec: RunSpec) -> Parts:
    """
    Raises:
        InputError: with the faults of all parts at once, or of their combination.
    """
    built, faults = _built(spec)
    faults += combination_faults(spec, built) if not faults else _faults_together(spec, built)
    if faults:
        raise InputError(*faults)
    return Parts(**built)


def combination_faults(spec: RunSpec, built: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with parts together, and with what `spec` asks for in addition to them.

    Args:
        built: Object of each of `KINDS`.
    """
    fits = True
    for fault in _faults_together(spec, built):
        fits = False
        yield fault
    if fits:
        made = Parts(**built)
        yield from _transform_faults(spec, made)
        yield from _join_faults(spec, made)
        yield from _first_rank_faults(spec, made)


def _built(spec: RunSpec) -> tuple[dict[str, Any], list[str]]:
    """Parts by kind, and what is wrong with those that are not among them."""
    built: dict[str, Any] = {}
    faults: list[str] = []
    for kind, base in KINDS.items():
        try:
            built[kind] = build(kind, getattr(spec, kind), base)
        except InputError as error:
            faults += error.faults
    return built, faults


def _faults_together(spec: RunSpec, built: Mapping[str, Any]) -> Iterator[str]:
    """Of what was asked for beside the parts that are there, and of these with each other."""
    strategy, compressor, workload = (built.get(kind) for kind in ("strategy", "compressor", "workload"))
    if strategy is not None:
        capabilities.place(strategy, spec.topology)
    if strategy is not None and compressor is not None and not strategy.carries_compressor:
        yield from _uncarried(spec, compressor)
    if strategy is not None:
        yield from _declaration_faults(spec, strategy)
    if compressor is not None:
        yield from (f"compressor={spec.compressor.name}: {fault}" for fault in compressor.validate(spec.workers))
    if workload is not None:
        yield from (f"workload={spec.workload.name}: {fault}" for fault in capabilities.partial_capabilities(workload))
    if workload is not None and spec.target is not None:
        yield from filter(None, [_target_fault(spec.workload.name, workload, spec.target)])
    if workload is not None and "device" in built and built["device"].computes and not workload.computes:
        yield (
            f"device={spec.device.name}: workload={spec.workload.name} does no arithmetic that could be timed; use"
            " device=h200, device=paced device.step_s=… or device=profile device.file=…"
        )
    if workload is not None and "device" in built:
        part = spec.workload
        yield from built["device"].validate_training(part.target, part.params, spec.batch_size)
    if compressor is not None and "device" in built:
        yield from built["device"].validate_compressor(spec.compressor.target, spec.compressor.params)
    if workload is not None and strategy is not None and "device" in built:
        work = capabilities.expected_work(strategy, workload, spec.batch_size).work
        yield from built["device"].validate_work(work)
    if strategy is not None:
        yield from capabilities.batch_faults(strategy, spec.batch_size, spec.workers)
    if strategy is not None and spec.epochs is not None and not _training(strategy, spec):
        yield (
            f"epochs={spec.epochs:g}: strategy={spec.strategy.name} goes by rounds, in which clients take samples of"
            " their own; give steps, each of which is a round"
        )
    if strategy is not None and workload is not None:
        yield from _partition_faults(workload, _training(strategy, spec))
    if strategy is not None and workload is not None and compressor is not None:
        for fault in strategy.validate(compressor, workload, spec.workers):
            yield (
                f"strategy={spec.strategy.name}: {own}" if (own := fault.removeprefix("strategy: ")) != fault else fault
            )
    if workload is not None and not workload.computes:
        name = spec.workload.name
        yield from (f"{asked}: workload={name} learns nothing; leave it out" for asked in spec.asked_of_models)


def _target_fault(name: str, workload: Workload, target: float) -> str | None:
    if workload.metric is None:
        return f"target={target:g}: workload={name} has no metric that could reach it; leave it out"
    return workload.metric.target_fault(target)


def _uncarried(spec: RunSpec, compressor: Compressor) -> Iterator[str]:
    """Yield a line if `compressor` changes anything, for a strategy that carries none."""
    asked = f"compressor={spec.compressor.name}"
    if isinstance(compressor, Uncompressed):
        asked = f"{asked} compressor.feedback={compressor.feedback}" if compressor.uses_feedback else ""
    if asked:
        yield (
            f"{asked}: strategy={spec.strategy.name} sends everything uncompressed; use compressor=none, or a strategy"
            " that carries a compressor, such as ddp"
        )


def _declaration_faults(spec: RunSpec, strategy: Strategy) -> Iterator[str]:
    """Yield what a strategy says of itself that cannot be true."""
    yield from (f"strategy={spec.strategy.name}: {fault}" for fault in capabilities.partial_capabilities(strategy))
    yield from sending_faults(spec, strategy)
    expendable = [rank for rank in range(spec.workers) if capabilities.tolerates_loss_of(strategy, rank)]
    if expendable and (strategy.uses_collectives or strategy.agreement is Agreement.MEAN_AT_END):
        why = "uses_collectives" if strategy.uses_collectives else "agreement=MEAN_AT_END"
        yield (
            f"strategy={spec.strategy.name}: says that it tolerates the loss of rank {expendable[0]}, and by {why} that"
            " all ranks take part in its exchanges; correct what the class declares"
        )


def _partition_faults(workload: Workload, ranks: int) -> Iterator[str]:
    """
    Args:
        ranks: that train.
    """
    partition = workload.partition if isinstance(workload, NumberedWorkload) else None
    if partition is not None and ranks * partition.least > workload.samples():
        yield (
            f"workload.partition.least={partition.least}: {workload.samples()} samples are too few for that many"
            f" of each of {ranks} ranks; use fewer"
        )


def _training(strategy: Strategy, spec: RunSpec) -> int:
    """Ranks that take part of an epoch's batches."""
    return sum(capabilities.part(strategy, rank, spec.workers) is not None for rank in range(spec.workers))


def _transform_faults(spec: RunSpec, parts: Parts) -> Iterator[str]:
    """Of what changes the model while it is trained, with the other parts."""
    name, transform = f"transform={spec.transform.name}", parts.transform
    if not transform.changes_the_model:
        return
    yield from (prefixed("transform", fault) for fault in transform.validate(parts.steps(spec)))
    at_once, keeps = transform.changes_at_once, transform.keeps_parameters
    if not at_once:
        yield from (f"{name}: {fault}" for fault in capabilities.partial_capabilities(transform))
    if not at_once and parts.strategy.agreement is Agreement.NONE:
        yield f"{name}: changes the model of all ranks alike, and those of strategy={spec.strategy.name} stay different"
    if not capabilities.takes_transform(parts.strategy, at_once=at_once, keeps_parameters=keeps):
        yield f"{name}: changes a model of which strategy={spec.strategy.name} leaves each rank a part; use another"
    if not parts.strategy.trains:
        yield f"{name}: strategy={spec.strategy.name} trains nothing, so that what it leaves would stay as it begins"
    if not parts.workload.computes:
        yield f"{name}: workload={spec.workload.name} has no weights of its own to change"
    yield from (prefixed("transform", fault) for fault in transform.misfits(parts.workload))
    if not transform.compresses_after:
        yield from parts.strategy.validate(Uncompressed(), parts.workload, spec.workers)
    if transform.adds_to_gradients and not parts.strategy.has_optimizer:
        yield (
            f"{name}: adds to gradients, or goes by them, just before an optimizer's step;"
            f" strategy={spec.strategy.name} has none"
        )
    if transform.adds_to_gradients and with_feedback(parts.compressor).traits.owns == "optimizer":
        yield (
            f"{name}: adds to gradients, goes by them or changes learning rates, but"
            f" compressor={spec.compressor.name} takes over the optimizer; use another compressor"
        )


def _join_faults(spec: RunSpec, parts: Parts) -> Iterator[str]:
    """Of events that start a node again, one line each."""
    ranks = {node.name: rank for rank, node in enumerate(spec.topology.nodes)}
    for change in spec.events if spec.program == "training" else ():
        if change.kind != "join" or change.node is None:
            continue
        where = f"events: {change.node} cannot join at {change.t_s:g} s"
        if not capabilities.tolerates_loss_of(parts.strategy, ranks[change.node]):
            yield f"{where}: strategy={spec.strategy.name} does not go on without it, nor take it in again"
        elif not capabilities.can_rejoin(parts.strategy, ranks[change.node]):
            yield f"{where}: strategy={spec.strategy.name} goes on without it, and does not take it in again"
        elif parts.transform.changes_the_model:
            yield f"{where}: transform={spec.transform.name} changes the model, which all ranks do at once"


def _first_rank_faults(spec: RunSpec, parts: Parts) -> Iterator[str]:
    """Of events that end rank 0, where the run goes on without any other; elsewhere it fails, as it was asked to."""
    expendable = [rank for rank in range(spec.workers) if capabilities.tolerates_loss_of(parts.strategy, rank)]
    if spec.program != "training" or not expendable:
        return
    node, name = spec.topology.nodes[0].name, f"strategy={spec.strategy.name}"
    changes = [change for change in spec.events if change.node == node and change.kind in ("crash", "join")]
    for change in changes:
        if change.kind == "join":
            continue
        where = f"events: {node}, which serves, crashes at {change.t_s:g} s"
        if spec.workers == 1:
            yield f"{where}: one worker trains without a server, and leaves nothing to go on from; use more workers"
        elif 0 not in expendable:
            yield f"{where}: {name} does not go on without it; use strategy.checkpoint=true, and a join event"
        elif not any(later.kind == "join" and later.t_s >= change.t_s for later in changes):
            yield f"{where}, and no join event starts it again: {name} does not go on without it"


def misfits(spec: RunSpec, parts: Parts, asked: str) -> Iterator[str]:
    """Yield what of a run cannot be trained on accelerators, one line each, behind the words that asked for them."""
    stages = spec.accelerator == CUDA
    yield from (f"{asked}: {fault}" for fault in accelerator_faults(spec, stages=stages))
    if spec.accelerator != PROCESSOR:  # of real machines it is asked where they have none, too
        yield from (f"{asked}: {fault}" for fault in untimed_faults(spec))
    if isinstance(parts.strategy, AcceleratorReady) and not stages:
        yield from (f"{asked}: {fault}" for fault in own_messages_faults(spec))
    name = type(parts.strategy).__name__
    yield from (f"{asked}: {name}: {fault}" for fault in capabilities.accelerator_faults(parts.strategy))
    if parts.transform.changes_the_model:
        yield f"{asked}: transforms change the model in the host's memory; leave transform out"
    if not parts.workload.computes:
        yield f"{asked}: {type(parts.workload).__name__} does no arithmetic that one could do; leave it out"


# The model that a run begins with: the workload's, with the numbers of one that was kept, as a transform has it.


def first_model(spec: RunSpec, parts: Parts) -> tuple[nn.Module, ModelChange | None]:
    """It, and what became of it at once, as `InitialChange.begin` tells; the same on all ranks.

    Raises:
        InputError: what was kept does not fit, or else the transform's parameters do not; with all faults.
    """
    model = parts.workload.model(spec.seed)
    if spec.start_from is not None:
        checkpoint.load(model, spec.start_from, spec.start_hash)
    return model, capabilities.begin(parts.transform, model, spec.seed)
