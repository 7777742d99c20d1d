"""Before a run is built: how long its steps take on a core of this machine, and the dilation that follows.

Taken under the machine's lock, alone on an idle core, once: the result is kept in the clone for the same training, code
and processor. What `longhaul predict` takes while another run has the machine serves its caller and is not kept.

A shared core takes a third longer at one hour than at another. So all compressors of a training go by what its model
took the first time: they differ by what they are, and not by the hour at which each was measured.

Some machines are slower with all cores busy, or at other hours, than that core was. So the dilation is a first guess,
which the run's pilot tries.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from testbed.core.costs.fusion import BY_TIMES
from testbed.core.costs.kfac_costs import planned
from testbed.core.device.profile import Profile
from testbed.core.errors import raise_input_faults
from testbed.core.record.run_directory import write_json
from testbed.core.record.used_files import entries, version
from testbed.core.spec.run_spec import NATIVE, PARTS, PROCESSOR, RunSpec
from testbed.orchestrator.emulation.containers.driver import driver_of
from testbed.orchestrator.machine import clone, provenance
from testbed.orchestrator.machine.lock import held_if_free
from testbed.orchestrator.run.dilation.first_guess import among_ranks, choose
from testbed.orchestrator.run.questions.plugins import ask_worker
from testbed.orchestrator.run.questions.replay_needs import time_faults
from testbed.orchestrator.run_store.used import named_files

CACHE = clone.CLONE / ".cache" / "profiles"
TIME_LIMIT_S = 300.0
_MAX_PLANS = 5
"""Of K-FAC: the slower a run, the cheaper its messages; then a plan has more of them, which asks for a slower run."""


@dataclass(frozen=True)
class Calibration:
    """Times of one training."""

    cpu: Profile
    """On a core of this machine."""
    device: Profile
    """On the device that is emulated."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Calibration:
        return cls(Profile.from_json(data["cpu_profile"]), Profile.from_json(data["device_profile"]))

    def to_json(self) -> dict[str, Any]:
        return {"cpu_profile": self.cpu.to_json(), "device_profile": self.device.to_json()}


def calibrate(
    spec: RunSpec, tell: Callable[[str], None], give: Callable[[Path], None] = lambda _: None
) -> tuple[RunSpec, Calibration | None]:
    """Return the spec with its dilation, and the times of its device; None where they are known only as it runs.

    Args:
        tell: is told what takes seconds.
        give: hands a file over to whoever called.

    Raises:
        InputError: the device cannot tell, no dilation does, or a replay takes longer than it may.
    """
    if spec.program != "training":
        return spec, None
    if spec.accelerator != PROCESSOR:
        # its own steps are measured while it trains; on another device they take what that is known to take
        guess = among_ranks(spec, len(driver_of(spec).devices)) if spec.auto_dilation else spec.dilation
        spec = dataclasses.replace(spec, dilation=guess)
        return spec, None if spec.device.target == NATIVE else _measured(spec, tell, give)
    found = _measured(spec, tell, give)
    rounds = 0 if not spec.auto_dilation else _MAX_PLANS if found.cpu.factored else 1
    while rounds and (chosen := _slowest(spec, found)) > spec.dilation:
        spec, rounds = dataclasses.replace(spec, dilation=chosen), rounds - 1
        found = calibrated_at(spec, found, tell, give)
    raise_input_faults(time_faults(spec, found.cpu, found.device))
    return spec, found


def calibrated_at(
    spec: RunSpec, found: Calibration, tell: Callable[[str], None], give: Callable[[Path], None] = lambda _: None
) -> Calibration:
    """Return `found` for the dilation of `spec`.

    The slower a run, the cheaper its messages; buckets and the plan of K-FAC may depend on that.
    """
    return _measured(spec, tell, give) if _goes_by_times(spec) or found.cpu.factored else found


def repeated(
    spec: RunSpec, times: int, tell: Callable[[str], None], give: Callable[[Path], None] = lambda _: None
) -> list[Calibration]:
    """Return repeated measurements of the same, each kept for the same training, code and processor.

    Raises:
        InputError: the device cannot tell.
    """
    return [_measured(spec, tell, give, number) for number in range(times)]


def _measured(spec: RunSpec, tell: Callable[[str], None], give: Callable[[Path], None], number: int = 0) -> Calibration:
    """
    Args:
        number: of the measurement; runs go by the first.
    """
    ending = f".{number}.json" if number else ".json"
    path, model_path = CACHE / f"{_key(spec)}{ending}", CACHE / f"{_key(spec, but='compressor')}.model{ending}"
    known = _kept(path)
    model = _kept(model_path) if known is None else None
    question = {"spec": spec.to_json(), "cpu": known, "model": model}
    with held_if_free() if known is None else contextlib.nullcontext(False) as is_held:
        if known is None:
            once = "once for this workload and code" if is_held else "not kept: a run has the machine"
            tell(f"measuring how long a step takes on a core of this machine ({once})")
        answer = ask_worker("calibrate", question, "calibration", TIME_LIMIT_S)
    if is_held:
        _keep(path, answer["cpu"], give)
        if model is None:
            _keep(model_path, answer["cpu"], give)
    return Calibration(*_planned(spec, Profile.from_json(answer["cpu"]), Profile.from_json(answer["device"])))


def _planned(spec: RunSpec, cpu: Profile, device: Profile) -> tuple[Profile, Profile]:
    """Both with what the strategy does beside, also once the model has changed."""
    then = cpu.switched, device.switched
    cpu, device = planned(spec, cpu, device)
    if then[0] is not None and then[1] is not None:
        cpu_then, device_then = planned(spec, then[0], then[1])
        return dataclasses.replace(cpu, switched=cpu_then), dataclasses.replace(device, switched=device_then)
    return cpu, device


def _slowest(spec: RunSpec, found: Calibration) -> float:
    """The dilation that suffices before and after the model changes."""
    pairs = [(found.cpu, found.device), (found.cpu.switched, found.device.switched)]
    return max(
        choose(spec, cpu, device, usable_cores()) for cpu, device in pairs if cpu is not None and device is not None
    )


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def _goes_by_times(spec: RunSpec) -> bool:
    """Whether its buckets depend on how long layers and messages take."""
    return spec.strategy.params.get("fusion") == BY_TIMES


def _key(spec: RunSpec, *more: str, but: str = "") -> str:
    """Of all that the processor's times depend on; device and dilation are none of it, unless they decide on buckets.

    How long the run is decides which steps a compressor is timed in.

    Args:
        but: what is left out all the same.
    """
    data = spec.to_json()
    keys = ["workload", "strategy", "compressor", "transform", "batch_size", "topology", "steps", "epochs", *more]
    if _goes_by_times(spec):
        keys += ["device", "dilation"]
    parts = {key: data[key] for key in keys if key != but}
    machine = [provenance.cpu_model(), metadata.version("torch"), provenance.code_hash()]
    if users := version(entries(named_files(spec, [part for part in PARTS if part != but]))):
        machine.append(users)
    return hashlib.sha256(json.dumps([parts, machine], sort_keys=True).encode()).hexdigest()[:24]


def _kept(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(OSError, ValueError):
        data: dict[str, Any] = json.loads(path.read_text())
        Profile.from_json(data)
        return data
    return None


def _keep(path: Path, data: dict[str, Any], give: Callable[[Path], None]) -> None:
    with contextlib.suppress(OSError):  # a clone that cannot be written to measures again each time
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, data)
        give(CACHE.parent)
