"""`python -m testbed.analysis budget`: which links do for a step time, by strategy and compressor, and what is sent.

Ranges come from two things: computing was measured several times, and predictions were off by so much where emulated
runs could tell. A range takes in all measurements and all of those errors: of n that are alike, the least and the
greatest hold one more between them in (n - 1) of (n + 1) cases, whatever their distribution.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_high
from typing import Any

from testbed.analysis.simulator import calibration
from testbed.analysis.simulator.calibration import Calibration
from testbed.analysis.simulator.least_links import (
    Interval,
    Targets,
    least_rate,
    longest_round_trip,
    rates,
)
from testbed.analysis.simulator.model.step_plan import strategy_of
from testbed.analysis.simulator.predict_command import predicted
from testbed.analysis.simulator.prediction import KIND, Prediction, faults
from testbed.core.costs.fusion import BY_TIMES
from testbed.core.device.profile import Profile
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec
from testbed.core.spec.topology import uniform_rtt_s, with_wan


@dataclass(frozen=True)
class Errors:
    """Of predictions, as shares: predicted over emulated, less 1; 0 where nothing was validated."""

    low: float = 0.0
    high: float = 0.0

    @classmethod
    def of(cls, found: Sequence[float]) -> Errors:
        if not found:
            return cls()
        return cls(min(0.0, *found), max(0.0, *found))

    def real(self, values: Sequence[float]) -> Interval:
        """What predictions from several measurements stand for."""
        return Interval(median_high(values), min(values) / (1 + self.high), max(values) / (1 + self.low))


def answer(question: Mapping[str, Any], calibration_file: Path | None = None) -> dict[str, Any]:
    """
    Args:
        question: {"target_step_s", "pairs": [{"spec", "profiles": [{"cpu", "device"}, ...], "rtts_s", "rates_bit_s"}]};
            without profiles a pair is only asked whether it can be simulated. Rates that are null are looked for.

    Raises:
        InputError: it is none.
    """
    known = calibration.known(calibration_file)
    errors, wan_errors = Errors(), Errors()
    if known.validation is not None:
        errors, wan_errors = Errors.of(known.validation.errors), Errors.of(known.validation.wan_errors)
    try:
        asked_s = float(question["target_step_s"])
        pairs = [_Pair.from_json(pair, known) for pair in question["pairs"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"budget: not what is asked of a budget: {type(error).__name__}: {error}") from error
    targets = Targets(asked_s, asked_s * (1 + errors.low), asked_s * (1 + errors.high))
    return {
        "kind": KIND,
        "validation": {
            "configurations": 0 if known.validation is None else len(known.validation.errors),
            "covered": None if known.validation is None else _covered(len(known.validation.errors)),
            "step_errors": dataclasses.asdict(errors),
            "wan_errors": dataclasses.asdict(wan_errors),
        },
        "pairs": [_pair(pair, targets, errors, wan_errors) for pair in pairs],
    }


def _covered(count: int) -> float:
    """The chance that one more of them lies between the least and the greatest."""
    return (count - 1) / (count + 1)


@dataclass(frozen=True, eq=False)
class _Pair:
    spec: RunSpec
    profiles: list[tuple[Profile, Profile]]
    links: list[tuple[float, float | None]]
    """Round trips, and the rates that are given."""
    known: Calibration
    _found: dict[tuple[int, float, float], Prediction] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], known: Calibration) -> _Pair:
        profiles = [(Profile.from_json(one["cpu"]), Profile.from_json(one["device"])) for one in data["profiles"]]
        links = zip(map(float, data["rtts_s"]), data["rates_bit_s"], strict=True)
        return cls(RunSpec.from_json(data["spec"]), profiles, list(links), known)

    def refusals(self) -> list[str]:
        found = faults(self.spec)
        for check in (lambda: strategy_of(self.spec), lambda: uniform_rtt_s(self.spec.topology)):
            try:
                check()
            except InputError as error:
                found += error.faults
        if self.spec.strategy.params.get("fusion") == BY_TIMES:
            found.append(f"strategy.fusion={BY_TIMES}: cuts other buckets for each link; use another rule")
        if self.spec.scale != 1:
            found.append(f"workload.scale={self.spec.scale:g}: links are looked for as they are; leave it out")
        return found

    def at(self, number: int, rate_bit_s: float, rtt_s: float) -> Prediction:
        """With the profiles of this number."""
        key = number, rate_bit_s, rtt_s
        if key not in self._found:
            spec = dataclasses.replace(self.spec, topology=with_wan(self.spec.topology, rate_bit_s, rtt_s))
            self._found[key] = predicted(spec, *self.profiles[number], self.known)
        return self._found[key]

    def _step_s(self, number: int, rate_bit_s: float, rtt_s: float) -> float:
        return self.at(number, rate_bit_s, rtt_s).times.step_s

    def by_rate(self, rtt_s: float) -> list[Callable[[float], float]]:
        return [functools.partial(self._step_s, number, rtt_s=rtt_s) for number in range(len(self.profiles))]

    def by_round_trip(self, rate_bit_s: float) -> list[Callable[[float], float]]:
        return [functools.partial(self._step_s, number, rate_bit_s) for number in range(len(self.profiles))]

    def all_at(self, rate_bit_s: float, rtt_s: float) -> list[Prediction]:
        return [self.at(number, rate_bit_s, rtt_s) for number in range(len(self.profiles))]


def _pair(pair: _Pair, targets: Targets, errors: Errors, wan_errors: Errors) -> dict[str, Any]:
    refused = pair.refusals()
    if refused or not pair.profiles:
        return {"refused": refused}
    most_bit_s = rates()[-1]
    try:
        points = [_point(pair, targets, rtt_s, given, errors, wan_errors) for rtt_s, given in pair.links]
        farthest = longest_round_trip(pair.by_round_trip(most_bit_s), targets)
        found = pair.all_at(most_bit_s, pair.links[0][0])
    except InputError as error:
        return {"refused": list(error.faults)}
    compute_s = [one.plan.compute_s for one in found]
    return {
        "refused": [],
        "compute_s": Interval(median_high(compute_s), min(compute_s), max(compute_s)).to_json(),
        "device_times": found[0].device_times,
        "longest_rtt_s": farthest.to_json(),
        "points": points,
    }


def _point(
    pair: _Pair, targets: Targets, rtt_s: float, given_bit_s: float | None, errors: Errors, wan_errors: Errors
) -> dict[str, Any]:
    """At one round trip. Where no rate does, the step and its bound are those of the highest."""
    rate = least_rate(pair.by_rate(rtt_s), targets)
    if given_bit_s is not None:
        rate = rate.with_estimate(given_bit_s)
    there = pair.all_at(rates()[-1] if rate.estimate is None else rate.estimate, rtt_s)
    return {
        "rtt_s": rtt_s,
        "rate_bit_s": rate.to_json(),
        "step_s": errors.real([one.times.step_s for one in there]).to_json(),
        "wan_bytes_step": wan_errors.real([one.traffic.wan_wire_bytes for one in there]).to_json(),
        "payload_bytes_step": median_high(one.traffic.payload_bytes for one in there),
        "bound_by": there[0].bound_by,
        "outside_by": list(there[0].standing.outside),
    }
