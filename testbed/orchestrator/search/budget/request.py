"""What `longhaul budget` is asked: a training, the step time it is to have, and which ways of making its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.core.errors import raise_input_faults
from testbed.core.units import parse_time_s
from testbed.orchestrator.search.sweep.axes import Axis, Value, read_axes
from testbed.orchestrator.search.sweep.grid import Grid, Point

TARGET, PRICE, RTT, RATE = "target_step_s", "price_per_gb", "topo.rtt", "topo.rate"
DEFAULTS = (
    "strategy=ddp,torch_ddp,dear",
    "compressor=none,fp16,int8,topk,powersgd",
    "topo=two_regions",
    "topo.rtt=10 ms,30 ms,67 ms,150 ms",
)
"""In place of what is not given. Compressors are those that the simulator was validated with."""
_PAIRED = ("strategy", "compressor")
"""Groups whose names and parameters may have several values."""
_MAX_RTT_S = 10.0


@dataclass(frozen=True)
class RoundTrip:
    value: Value
    seconds: float


@dataclass(frozen=True)
class BudgetRequest:
    target_step_s: float
    price_per_gb: float | None
    """In whatever currency; None: nothing is said of cost."""
    round_trips: tuple[RoundTrip, ...]
    pairs: tuple[Point, ...]
    """A strategy and a compressor each, with the training and without round trip."""

    def overrides(self, pair: Point, rtt: Value, rate: str | None = None) -> list[str]:
        """Of a run; without a rate the topology's own."""
        asked = [*pair.overrides, f"{RTT}={rtt.text}"]
        return asked if rate is None else [*asked, f"{RATE}={rate}"]


def read(words: Sequence[str]) -> BudgetRequest:
    """
    Raises:
        InputError: with every fault at once.
    """
    given = read_axes(words)
    keys = {axis.key for axis in given}
    axes = {axis.key: axis for axis in [*given, *(one for one in read_axes(DEFAULTS) if one.key not in keys)]}
    faults = list(_axis_faults(given))
    target_step_s = _number(axes.pop(TARGET, None), faults, TARGET, above=0.0)
    if target_step_s is None and TARGET not in keys:
        faults.append(f"{TARGET}: must be given, the seconds that a step is to take at most")
    price = _number(axes.pop(PRICE, None), faults, PRICE, above=-math.ulp(0.0))
    round_trips = tuple(_round_trips(axes.pop(RTT), faults))
    raise_input_faults(faults)
    assert target_step_s is not None
    return BudgetRequest(target_step_s, price, round_trips, tuple(Grid("budget", tuple(axes.values())).points()))


def _axis_faults(axes: Sequence[Axis]) -> Iterator[str]:
    for axis in axes:
        if axis.key == RATE:
            yield f"{RATE}={axis.values[0].plain}: is what is looked for; leave it out"
        elif len(axis.values) > 1 and axis.key != RTT and axis.key.partition(".")[0] not in _PAIRED:
            values = ",".join(value.plain for value in axis.values)
            yield f"{axis.key}={values}: takes one value; several may have {RTT}, strategy and compressor"


def _number(axis: Axis | None, faults: list[str], key: str, *, above: float) -> float | None:
    if axis is None or len(axis.values) > 1:
        return None
    text = axis.values[0].plain
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > above and math.isfinite(value)):
        faults.append(f"{key}={text}: must be a number {'above 0' if above == 0 else 'from 0'}, without a unit")
        return None
    return value


def _round_trips(axis: Axis, faults: list[str]) -> Iterator[RoundTrip]:
    for value in axis.values:
        try:
            seconds = parse_time_s(value.plain)
        except ValueError as error:
            faults.append(f"{RTT}: {error}")
            continue
        if not 0 < seconds <= _MAX_RTT_S:
            faults.append(f"{RTT}={value.plain}: must be above 0 and at most {_MAX_RTT_S:g} s")
        yield RoundTrip(value, seconds)
