"""`python -m testbed.worker calibrate`: how long this training's parts take on a core of this machine, and what its
device makes of that."""

from __future__ import annotations

import json
from typing import Any, TextIO

from testbed.core.device import Device
from testbed.core.errors import EXIT_COMPLETED, EXIT_INPUT, InputError
from testbed.core.profile import Profile
from testbed.core.spec import RunSpec
from testbed.worker.build import build


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
    from testbed.worker.step_times import measure

    found = measure(spec)
    return found if model is None else found.with_model_of(Profile.from_json(model))
