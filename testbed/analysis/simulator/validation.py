"""How well the simulator did where an emulated run could tell, and whether a prediction is of that kind."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.core.spec.run_spec import RunSpec
from testbed.core.units import format_rate, format_time

_NOT_MODELLED = ("jitter_s", "duplicate_ratio", "reorder_ratio")
"""Of links. Calibrations that do not tell of them were made on networks without."""
_TRAITS = ("strategy", "compressor", "collective", "workload", "tcp")
_NUMBERS = ("workers", "regions", "slowest_bit_s", "farthest_rtt_s", "loss_ratio", *_NOT_MODELLED)


def traits(spec: RunSpec) -> dict[str, Any]:
    """What decides whether a configuration is like those that were validated."""
    profiles = [profile for link in spec.topology.links for _, _, profile in link.directions()]
    return {
        "strategy": spec.strategy.name,
        "compressor": spec.compressor.name,
        "collective": str(spec.strategy.params.get("collective", "gloo")),
        "workload": spec.workload.name,
        "tcp": spec.tcp,
        "workers": spec.workers,
        "regions": len({node.region for node in spec.topology.nodes}),
        "slowest_bit_s": min((p.rate_bit_s for p in profiles), default=0.0),
        "farthest_rtt_s": spec.topology.farthest_rtt_s,
        **{key: max((getattr(p, key) for p in profiles), default=0.0) for key in ("loss_ratio", *_NOT_MODELLED)},
    }


@dataclass(frozen=True)
class Validation:
    """Emulated against predicted step times, of configurations that nothing was fitted to."""

    errors: tuple[float, ...]
    """Predicted over emulated, less 1."""
    traits: tuple[Mapping[str, Any], ...]
    wan_errors: tuple[float, ...] = ()
    """Likewise, of bytes over the WAN, where there is one."""

    @property
    def median_error(self) -> float:
        return statistics.median(abs(error) for error in self.errors)

    @property
    def worst_error(self) -> float:
        return max(abs(error) for error in self.errors)

    def outside(self, asked: Mapping[str, Any]) -> Iterator[str]:
        """In which respects `asked` is unlike all that was validated."""
        for key in _TRAITS:
            known = sorted({str(one[key]) for one in self.traits})
            if asked[key] not in known:
                yield f"{key} {asked[key]} (validated: {', '.join(known)})"
        for key in _NUMBERS:
            values = [one.get(key, 0.0) if key in _NOT_MODELLED else one[key] for one in self.traits]
            low, high = min(values), max(values)
            if not low * (1 - 1e-9) <= asked[key] <= high * (1 + 1e-9):
                words = key.removesuffix("_bit_s").removesuffix("_s").removesuffix("_ratio").replace("_", " ")
                yield f"{words} {_spoken(key, asked[key])} (validated: {_spoken(key, low)} to {_spoken(key, high)})"


@dataclass(frozen=True)
class Standing:
    """Of one prediction."""

    validation: Validation | None
    outside: tuple[str, ...]

    @classmethod
    def of(cls, spec: RunSpec, validation: Validation | None, library: str | None = None) -> Standing:
        if validation is None:
            return cls(validation, ())
        unlike = [] if library is None else [f"library {library} (validated: this testbed's gloo)"]
        if spec.connections is not None:
            unlike.append(f"connections {spec.connections} (validated: one of gloo)")
        return cls(validation, (*unlike, *validation.outside(traits(spec))))

    def lines(self) -> list[str]:
        known = self.validation
        if known is None:
            return ["validated on nothing: there is no calibration"]
        said = (
            f"validated on {len(known.errors)} emulated configurations:"
            f" median error {known.median_error:.1%}, worst {known.worst_error:.1%}"
        )
        if not self.outside:
            return [f"{said}; this prediction is inside that range"]
        return [f"{said}; this prediction is outside that range:", *(f"  {why}" for why in self.outside)]

    def to_json(self) -> dict[str, Any]:
        known = self.validation
        return {
            "configurations": 0 if known is None else len(known.errors),
            "median_error": None if known is None else known.median_error,
            "worst_error": None if known is None else known.worst_error,
            "inside": known is not None and not self.outside,
            "outside_by": list(self.outside),
        }


def _spoken(key: str, value: float) -> str:
    if key.endswith("_bit_s"):
        return format_rate(value)
    if key.endswith("_s"):
        return format_time(value) if value else "0 s"
    return f"{value:g}"
