"""`longhaul profile`: how long a training's layers and compressor take on a device, as a file for `device=profile`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from testbed.core.device.by_flop import at_flop_rate
from testbed.core.device.profile import MEASURED, Profile
from testbed.core.device.timelines.timeline import Timeline
from testbed.core.device.timelines.timeline_file import timeline_of
from testbed.core.errors import EXIT_COMPLETED, InputError
from testbed.core.record.run_directory import write_json
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.machine.ownership import give_to_caller, place
from testbed.orchestrator.run.questions.plugins import ask_worker
from testbed.orchestrator.terminal.spoken import spoken, spoken_time
from testbed.orchestrator.terminal.terminal import show, tell

TIME_LIMIT_S = 900.0
_DEFAULT_DEVICE = "cpu"
_MAX_FLOP_S = 1e18
"""Rate of a device; a whole supercomputer has more, and no accelerator."""


def profile(
    overrides: Sequence[str],
    output: Path,
    *,
    device: str = _DEFAULT_DEVICE,
    precision: str = "fp32",
    flop_s: float | None = None,
) -> int:
    """Measure, or compute, the profile of what `overrides` ask for and write it; of a replay its timeline.

    Args:
        precision: Precision of a replay's model: fp32, tf32 or bf16.
        flop_s: FLOPs a second that a device is said to do; its profile is made by arithmetic, and marked so.

    Raises:
        InputError: in the arguments, there is no such device, or `output` cannot be written, which is known before
            anything is measured.
    """
    resolved = resolve([*overrides, *_paced_where_nothing_computes(overrides, flop_s)])
    if resolved.faults:
        raise InputError(*resolved.faults)
    if flop_s is not None and not 0 < flop_s <= _MAX_FLOP_S:
        raise InputError(f"--flop-s {flop_s:g}: must be above 0 and at most {_MAX_FLOP_S:g}")
    if flop_s is not None and precision != "fp32":
        raise InputError(f"--precision {precision}: is of a measurement; leave it out where --flop-s is given")
    spec = resolved.spec
    if spec.program != "training":
        raise InputError(f"workload={spec.workload.name}: only what this program trains can be measured")
    made = place(output)
    if flop_s is None:
        question = {"spec": spec.to_json(), "device": device, "precision": precision}
        answer = ask_worker("profile", question, "profile", TIME_LIMIT_S)
        if answer["timeline"] is not None:
            return _write_timeline(timeline_of(answer["timeline"], "profile"), output, made)
        found = Profile.from_json(answer["profile"])
    else:
        answer = ask_worker("calibrate", {"spec": spec.to_json(), "cpu": None, "model": None}, "profile", TIME_LIMIT_S)
        found = at_flop_rate(Profile.from_json(answer["cpu"]), flop_s)
    data = found.to_json()
    data["provenance"] |= {key: provenance.collect()[key] for key in ("commit", "dirty", "code_hash")}
    write_json(output, data)
    give_to_caller(made)
    show(table(found))
    tell(f"written to {output}; use it with device=profile device.file={output}")
    return EXIT_COMPLETED


def _write_timeline(found: Timeline, output: Path, made: Path) -> int:
    where = {key: provenance.collect()[key] for key in ("commit", "dirty", "code_hash")}
    write_json(output, found.to_json() | {"provenance": {**found.provenance, **where}})
    give_to_caller(made)
    phases = found.phases_s
    times = (("forward", phases.forward), ("backward", phases.backward), ("optimizer", phases.optimizer))
    tell(f"{found.model}, batches of {found.batch_size}, {found.precision}: {found.device}")
    tell(", ".join(f"{name} {spoken_time(seconds)}" for name, seconds in times))
    if found.host_limited:
        tell("the host limited the device while it was measured, so times inside of phases are stretched")
    tell(f"written to {output}; use it with device=profile device.file={output}")
    return EXIT_COMPLETED


def _paced_where_nothing_computes(overrides: Sequence[str], flop_s: float | None) -> list[str]:
    """A rate in FLOPs is a device of its own, and a replay is measured on one; the one of the spec is not asked."""
    named = any(override.startswith("device") for override in overrides)
    return ["device=paced"] if not named and (flop_s is not None or "workload=replay" in overrides) else []


def table(found: Profile) -> Table:
    """Layers that take time, and the sums."""
    where = found.basis if found.basis != MEASURED else found.provenance.get("measured_on", "")
    title = f"{found.workload}, batches of {found.batch_size}: {where}"
    view = Table(title=title, title_justify="left", box=box.SIMPLE)
    for heading in ("layer", "parameters", "forward", "backward", "GFLOP forward"):
        view.add_column(heading, justify="left" if heading == "layer" else "right")
    for layer in found.layers:
        times = (spoken_time(layer.forward_s), spoken_time(layer.backward_s))
        view.add_row(layer.name, f"{layer.parameters:,}", *times, spoken(layer.forward_flop / 1e9))
    view.add_row("all", f"{sum(one.parameters for one in found.layers):,}", *_sums(found), end_section=True)
    for phase, seconds in codec_s_byte(found).items():
        view.add_row(f"{phase}, a byte of gradients", "", spoken_time(seconds))
    return view


def _sums(found: Profile) -> tuple[str, str, str]:
    flop = sum(one.forward_flop for one in found.layers)
    return spoken_time(found.forward_s), spoken_time(found.backward_s), spoken(flop / 1e9)


def codec_s_byte(found: Profile) -> dict[str, float]:
    """Seconds a byte of gradients, by phase, of the largest size measured."""
    seconds: dict[str, Any] = {}
    for phase, value in found.codec[-1].rounds if found.codec else ():
        seconds[phase] = seconds.get(phase, 0.0) + value / (4 * found.codec[-1].elements)
    return seconds
