"""Changes of a run with which a dilation is found: its device, or how often it exchanges."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

from testbed.core.device.device import Device, Paced
from testbed.core.device.measured import Measured, Published
from testbed.core.device.profile import Profile
from testbed.core.device.timelines.published import SHAPE
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec
from testbed.core.units import format_time
from testbed.orchestrator.config.grammar.offers import Offer

MEASURED_ANEW = 1.1
"""Times the CPU seconds of a step: a run that is measured again, on a busier core perhaps, must still fit."""
SCALES = "reno"
"""TCP profile whose congestion control counts round trips, not seconds of the wall (decision 0009)."""
_MAX_STEP_S = 3600.0
_MAX_DOUBLINGS = 10
Smallest = Callable[[Profile, Profile], float | None]
"""The smallest dilation that suffices for a CPU's profile and a device's; None if none does."""


def paced(spec: RunSpec, cpu: Profile, device: Profile, smallest: Smallest) -> Iterator[Offer]:
    """Yield the fastest modelled device that gives the workers time enough: slower than `device`, which does not.

    A device with timelines keeps their shape; all others are paced.
    """
    kind, name = _slower_kind(spec)
    is_same = spec.device.target.endswith(f".{kind.__name__}")
    others = {key: value for key, value in spec.device.params.items() if is_same and key != "step_s"}
    if kind is Measured and not is_same:
        others = {"accelerator": name}
    step_s = max(device.forward_s + device.backward_s, 1e-6)
    slower, _ = measured_anew(cpu, device)
    while (rounded_s := _round_up(step_s)) <= _MAX_STEP_S:
        try:
            k = smallest(slower, _on(kind(step_s=rounded_s, **others), cpu))
        except (ValueError, InputError):  # its layers have no FLOPs, by which a paced device splits
            return
        if k is not None:
            changes = {"device.step_s": f"{rounded_s:g}"}
            says = f"an accelerator that computes {format_time(rounded_s)} a step, at a dilation of {k:g}"
            yield Offer(changes if is_same else {"device": name, **changes}, says)
            return
        step_s *= 1.1


def _slower_kind(spec: RunSpec) -> tuple[type[Paced] | type[Measured], str]:
    """Return the kind of device that may be slower, and the name of its configuration."""
    if spec.device.target.endswith((f".{Measured.__name__}", f".{Published.__name__}")):
        return Measured, str(spec.device.params.get("accelerator", SHAPE[0]))
    return Paced, "paced"


def _on(device: Device, cpu: Profile) -> Profile:
    found = device.profile(cpu)
    if cpu.switched is None:
        return found
    return dataclasses.replace(found, switched=device.switched(cpu, cpu.switched))


def interval(spec: RunSpec, cpu: Profile, device: Profile, smallest: Smallest) -> Iterator[Offer]:
    """Yield another number of steps from one exchange to the next: the nearest longer one, or else a shorter one."""
    now = cpu.cycle_steps
    key = next((key for key in ("sync_every", "local_steps") if spec.strategy.params.get(key) == now), None)
    if key is None or cpu.switched is not None:
        return
    longer = [now * 2**power for power in range(1, _MAX_DOUBLINGS)]
    shorter = [steps for steps in range(now - 1, 0, -1) if now % steps == 0]
    for steps in [*(one for one in longer if one <= (spec.steps or math.inf)), *shorter]:
        k = smallest(*measured_anew(dataclasses.replace(cpu, cycle_steps=steps), device, cycle_steps=steps))
        if k is not None:
            often = f"every {steps} steps" if steps > 1 else "in every step"
            yield Offer({f"strategy.{key}": str(steps)}, f"an exchange {often}, at a dilation of {k:g}")
            return


def congestion_control(spec: RunSpec, smallest: Callable[[RunSpec], float | None]) -> Iterator[Offer]:
    """Yield the TCP profile that bears a larger dilation, if it suffices.

    Args:
        smallest: The smallest dilation that suffices for another spec; None if none does.
    """
    if spec.tcp != SCALES and (k := smallest(dataclasses.replace(spec, tcp=SCALES))) is not None:
        yield Offer({"tcp": SCALES}, f"congestion control that scales in time, at a dilation of {k:g}")


def measured_anew(cpu: Profile, device: Profile, **changes: int) -> tuple[Profile, Profile]:
    """Return the profiles of a run that is like the one they were measured for, on a busier core."""
    slower = dataclasses.replace(cpu, cpu_step_s=MEASURED_ANEW * cpu.cpu_step_s)
    if slower.switched is not None:
        slower = dataclasses.replace(slower, switched=measured_anew(slower.switched, device)[0])
    return slower, dataclasses.replace(device, **changes)  # type: ignore[arg-type]


def _round_up(value: float) -> float:
    """Return the value with two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit - 1e-9) * unit
