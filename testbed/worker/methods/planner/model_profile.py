"""`python -m testbed.worker pieces`: what planning needs of a model, on the device that a spec names."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, TextIO

import torch
from torch import nn

from testbed.core.device.device import Device
from testbed.core.device.profile import Profile
from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT, InputError
from testbed.core.parallelism.model import MeasuredLayer, ModelProfile
from testbed.core.parallelism.plan import Plan
from testbed.core.parallelism.problem import FORWARD_SHARE, STEP_OF_FORWARD
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.device.median import repeated
from testbed.worker.interfaces.workload import Workload, trained
from testbed.worker.interfaces.workload_capabilities import Sequential, preload
from testbed.worker.methods.pipeline.stage_times import StageTimes
from testbed.worker.methods.planner.piece_times import BUDGET_S, line, measured_layers, optimizer_states
from testbed.worker.model.pieces import Piece
from testbed.worker.profile.layer_times import measure_layers
from testbed.worker.profile.machine import this_machine
from testbed.worker.profile.step_times import part_text
from testbed.worker.training.parts import Parts, build_parts, first_model


def answer(source: TextIO, sink: TextIO) -> int:
    """Read {"spec"}, write {"faults", "model"}; return the exit status."""
    told: dict[str, Any] = {"faults": [], "model": None}
    try:
        told["model"] = model_profile(RunSpec.from_json(json.load(source)["spec"])).to_json()
    except InputError as error:
        told["faults"] = list(error.faults)
    json.dump(told, sink, allow_nan=False)
    sink.write("\n")
    return EXIT_INPUT if told["faults"] else EXIT_COMPLETED


def model_profile(spec: RunSpec) -> ModelProfile:
    """Of the model that a run of `spec` begins with, one sample at a time and several.

    A device that is none of this machine's processors says how long the layers of a whole batch take: a piece has its
    layers' part of it, and nothing besides that a call takes.

    Raises:
        InputError: the workload's model is no chain, does no arithmetic, or the device cannot tell.
    """
    torch.set_num_threads(1)
    parts = build_parts(spec)
    workload = parts.workload
    preload(workload)
    model, _ = first_model(spec, parts)
    if not isinstance(workload, Sequential) or not workload.pieces(model):
        raise InputError(f"workload={spec.workload.name}: its model is no chain of pieces that could be cut")
    device = None if parts.device.computes else _layer_times(spec, parts, model)
    return profile_of(workload, model, spec, device)


def profile_of(workload: Workload, model: nn.Module, spec: RunSpec, device: Profile | None = None) -> ModelProfile:
    """Of this model, which is left as it is.

    Args:
        device: how long its layers take there; None: what pieces take on this processor is measured.
    """
    assert isinstance(workload, Sequential), "another one is refused"
    model, looked_at = copy.deepcopy(model), copy.deepcopy(model)
    if not workload.computes:
        looked_at.requires_grad_(False)  # gradients would take memory, and tell nothing
    pieces = workload.pieces(looked_at)
    sizes, budget_s = (_samples(spec.batch_size), BUDGET_S) if device is None else ([spec.batch_size], 0.0)
    batches = {samples: _batch(workload, spec, samples) for samples in sizes}
    layers = measured_layers(workload, pieces, batches, _degrees(spec), budget_s)
    if device is not None:
        layers = _on_device(layers, workload.pieces(model), model, device)
    states = _states(device) if not workload.computes else optimizer_states(workload.optimizer(trained(looked_at)))
    return ModelProfile(layers=layers, optimizer_states=states, provenance=this_machine())


def _states(device: Profile | None) -> int:
    """Of the optimizer that a device was measured with, where the workload's keeps nothing; AdamW's are the most."""
    known = {"sgd": 1, "adamw": 2}
    return known.get("" if device is None else str(device.provenance.get("optimizer", "")), max(known.values()))


def _degrees(spec: RunSpec) -> range:
    """Of ranks that may share a piece: those of one region."""
    return range(1, max(Counter(node.region for node in spec.topology.nodes).values()) + 1)


def _samples(batch_size: int) -> list[int]:
    return sorted({1, max(1, batch_size // 4), batch_size})


def _batch(workload: Workload, spec: RunSpec, samples: int) -> Any:
    return workload.batch(0, rank=0, world_size=1, batch_size=samples, seed=spec.seed)


def _layer_times(spec: RunSpec, parts: Parts, model: nn.Module) -> Profile:
    """Of the device, of layers alone."""
    layers, forward_s, backward_s = measure_layers(parts.workload, model, spec, repeated)
    device: Device = parts.device
    return device.layers(
        Profile(
            workload=part_text(spec.workload),
            compressor=part_text(spec.compressor),
            batch_size=spec.batch_size,
            layers=layers,
            forward_s=forward_s,
            backward_s=backward_s,
            optimizer_s=0.0,
            provenance={**this_machine(), "strategy": part_text(spec.strategy), "workers": spec.workers},
        )
    )


def _on_device(
    layers: Sequence[MeasuredLayer], pieces: Sequence[Piece], model: nn.Module, device: Profile
) -> tuple[MeasuredLayer, ...]:
    """As a pipeline's ranks are paced there, see `StageTimes`, but by a straight line through all batches that are
    known and one sample."""
    times, count = ComputeTimes(device, model), len(pieces)
    degrees = list(layers[0].forward_s)
    seconds: dict[int, list[float]] = {}
    shares = list[float]()
    for tp in degrees:
        # a stage for each piece, and a whole batch at a time
        samples = device.batch_size
        plan = Plan(
            pp=count, dp=1, tp=tp, micro_batch=samples, cuts=tuple(range(count)), placement=tuple(range(count * tp))
        )
        stages = StageTimes(times, model, pieces, plan, device.batch_size)
        passes = [(stages.forward_s(n) or 0.0, stages.backward_s(n) or 0.0) for n in range(count)]
        seconds[tp] = [forward_s + backward_s for forward_s, backward_s in passes]
        shares = [f / (f + b) if f + b else FORWARD_SHARE for f, b in passes]  # whatever tp, which divides both
    sizes = {1, *(size for size, _ in device.passes)} if len(device.passes) > 1 else {device.batch_size}
    call, sample = line({size: times.share(size, device.batch_size) for size in sizes})
    return tuple(
        dataclasses.replace(
            layer,
            forward_s={tp: sample * seconds[tp][n] / STEP_OF_FORWARD for tp in degrees},
            call_s={tp: call * seconds[tp][n] / STEP_OF_FORWARD for tp in degrees} if call else {},
            forward_share=shares[n],
        )
        for n, layer in enumerate(layers)
    )
