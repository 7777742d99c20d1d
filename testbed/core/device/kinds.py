"""Types of the parameters of devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from testbed.core.kinds import Kind, Number, shown
from testbed.core.units import parse_time_s

_ABOVE_0 = Number(above=0, below=1e6)


@dataclass(frozen=True)
class _Seconds(Kind):
    """Seconds, as a number or as text with a unit."""

    type_text = "seconds, or time as text with a unit"
    values_text = _ABOVE_0.values_text

    def faults(self, name: str, value: object, *, null: bool = False) -> Iterator[str]:
        if isinstance(value, str):
            try:
                value = parse_time_s(value)
            except ValueError as error:
                yield f"{name}={shown(value)}: {error}"
                return
        yield from _ABOVE_0.faults(name, value, null=null)


@dataclass(frozen=True)
class _ByKind(Kind):
    """A value for each kind of what is done."""

    kind: Kind
    known: tuple[str, ...] = ()
    """Kinds there are; empty: those of a strategy's own work, which it names itself."""

    @property
    def type_text(self) -> str:
        return f"{self.kind.type_text}, by {' or '.join(self.known) or 'kind of work'}"

    def faults(self, name: str, value: object, *, null: bool = False) -> Iterator[str]:
        if isinstance(value, Mapping):
            for kind, one in value.items():
                if self.known and kind not in self.known:
                    yield f"{name}.{kind}={shown(one)}: unknown; known: {', '.join(self.known)}"
                else:
                    yield from self.kind.faults(f"{name}.{kind}", one)
        elif not (null and value is None):
            yield self.refusal(name, value, null=null)


Speedup = Annotated[float, _ABOVE_0]
StepSeconds = Annotated[float | str, _Seconds()]
WorkSeconds = Annotated[Mapping[str, float], _ByKind(_Seconds())]
HOST_COSTS = ("collective", "segment")
"""Times of a host: before a collective sends, and before a segment that has come is passed on."""
HostSeconds = Annotated[Mapping[str, float], _ByKind(_Seconds(), HOST_COSTS)]
WorkGrowth = Annotated[Mapping[str, float], _ByKind(_ABOVE_0)]


def seconds(value: float | str) -> float:
    """Return seconds given as a number or as text with a unit."""
    return parse_time_s(value) if isinstance(value, str) else float(value)
