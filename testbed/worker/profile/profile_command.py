"""`python -m testbed.worker profile`: what `longhaul profile` writes. Reads {"spec", "device"} on stdin."""

from __future__ import annotations

import dataclasses
import json
import statistics
from typing import Any, TextIO

import torch

from compressors.base.compressor import Layout
from compressors.base.feedback import with_feedback
from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.device import Device
from testbed.core.device.profile import LayerTimes, Profile
from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT, InputError
from testbed.core.models.catalogue import find_model
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.device.accelerator import to_device
from testbed.worker.device.median import repeated
from testbed.worker.interfaces.workload import trained
from testbed.worker.interfaces.workload_capabilities import Modelled
from testbed.worker.plugins.factory import build
from testbed.worker.profile.codec_times import codec_times
from testbed.worker.profile.layer_times import measure_layers
from testbed.worker.profile.machine import this_machine
from testbed.worker.profile.measured_timeline import FULL, measure_timeline
from testbed.worker.profile.step_times import batch_of, measure
from testbed.worker.training.parts import build_parts, first_model

_LADDER = tuple(4**power for power in range(5, 13))
"""Sizes, in elements, at which the codec is measured beside those of the step's own buckets: 4 kB to 64 MB."""


def profile(source: TextIO, sink: TextIO) -> int:
    """Write {"faults", "profile", "timeline"}, of which a replay has the last; return the exit status."""
    answer: dict[str, Any] = {"faults": [], "profile": None, "timeline": None}
    question = json.load(source)
    try:
        spec, device, precision = RunSpec.from_json(question["spec"]), question["device"], question["precision"]
        where = _device(device)
        if isinstance(build_parts(spec).workload, Modelled) and "model" in spec.workload.params:
            table = find_model(spec.workload.params["model"], spec.workload.params.get("tokens"))
            answer["timeline"] = measure_timeline(table, spec.batch_size, where, precision).to_json()
        elif precision != FULL:
            raise InputError(f"--precision {precision}: of replays alone; other workloads compute in {FULL}")
        else:
            answer["profile"] = measured(spec, device).to_json()
    except InputError as error:
        answer["faults"] = list(error.faults)
    json.dump(answer, sink, allow_nan=False)
    sink.write("\n")
    return EXIT_INPUT if answer["faults"] else EXIT_COMPLETED


def measured(spec: RunSpec, device: str) -> Profile:
    """
    Args:
        device: "cpu", or what torch calls an accelerator, such as "cuda" or "cuda:1".

    Raises:
        InputError: there is no such device, or the workload computes nothing that could be measured.
    """
    where = _device(device)
    if not build_parts(spec).workload.computes:
        raise InputError(f"workload={spec.workload.name}: it does no arithmetic, so nothing can be measured")
    cpu = measure(spec)
    found = dataclasses.replace(cpu, codec=_with_ladder(spec, cpu))
    return found if where.type == "cpu" else _on_accelerator(spec, found, where)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        there = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
        reason = str(error).splitlines()[0]
        raise InputError(f"--device {name}: {reason}; this machine has {', '.join(there)}") from error
    return device


def _with_ladder(spec: RunSpec, cpu: Profile) -> tuple[CodecTimes, ...]:
    """The step's own buckets as they are, and others up to four times the largest; none for compressors whose rounds
    are their own, since those depend on shapes."""
    if build_parts(spec).compressor.traits.own_rounds:
        return cpu.codec
    own = {bucket.elements for bucket in cpu.codec}
    most = 4 * max(own, default=_LADDER[-1])
    others = [Layout(((elements,),)) for elements in _LADDER if elements <= most and elements not in own]
    codec, _ = codec_times(spec, others)
    return tuple(sorted([*cpu.codec, *codec], key=lambda bucket: bucket.elements))


def _on_accelerator(spec: RunSpec, cpu: Profile, device: torch.device) -> Profile:
    """Layers and optimizer there; compressors work in the host's memory, so their times stay those of the processor.

    A strategy's own work is not timed there, and what it takes here says nothing of it: such a profile has none.
    """
    parts = build_parts(spec)
    model = first_model(spec, parts)[0].to(device)
    layers, forward_s, backward_s = measure_layers(parts.workload, model, spec, repeated)
    return dataclasses.replace(
        cpu,
        layers=_with_flop_of(layers, cpu),
        forward_s=forward_s,
        backward_s=backward_s,
        optimizer_s=_optimizer_s(spec, model, device),
        other_s=0.0,
        work=(),
        switched=None,
        provenance={**this_machine(device), "codec_measured_on": cpu.provenance},
    )


def _with_flop_of(layers: tuple[LayerTimes, ...], cpu: Profile) -> tuple[LayerTimes, ...]:
    flop = {layer.name: layer.forward_flop for layer in cpu.layers}
    return tuple(dataclasses.replace(layer, forward_flop=flop[layer.name]) for layer in layers)


def _optimizer_s(spec: RunSpec, model: torch.nn.Module, device: torch.device) -> float:
    parts = build_parts(spec)
    workload = parts.workload
    optimizer = with_feedback(parts.compressor).adopt(workload.optimizer(trained(model)))
    workload.loss(model, to_device(batch_of(workload, spec), device)).backward()
    times: list[float] = []
    for _ in range(12):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        optimizer.step()
        end.record()
        torch.cuda.synchronize(device)
        times.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(times[2:])


# `python -m testbed.worker calibrate`: how long this training's parts take on a core of this machine, and what its
# device makes of that.


def calibrate(source: TextIO, sink: TextIO) -> int:
    """Read {"spec", "cpu", "model"}; write {"faults", "cpu", "device"}, both profiles; return the exit status.

    "cpu" is a profile, or null to have it measured. Then "model" may be one of the same model under another compressor,
    whose layers, forward and backward are taken.
    """
    answer: dict[str, Any] = {"faults": [], "cpu": None, "device": None}
    question = json.load(source)
    spec = RunSpec.from_json(question["spec"])
    try:
        device: Device = build("device", spec.device, Device)
        cpu = _measured(spec, question["model"]) if question["cpu"] is None else Profile.from_json(question["cpu"])
        answer |= {"cpu": cpu.to_json(), "device": device.whole_profile(cpu).to_json()}
    except InputError as error:
        answer["faults"] = list(error.faults)
    json.dump(answer, sink, allow_nan=False)
    sink.write("\n")
    return EXIT_INPUT if answer["faults"] else EXIT_COMPLETED


def _measured(spec: RunSpec, model: dict[str, Any] | None) -> Profile:
    # torch takes seconds to import, and most runs have a measurement from before
    from testbed.worker.profile.step_times import measure

    found = measure(spec)
    return found if model is None else found.with_model_of(Profile.from_json(model))
