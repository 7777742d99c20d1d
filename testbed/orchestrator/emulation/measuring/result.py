"""What was measured of links at one stage of a run, and where it disagrees with what was asked.

Measured in wall-clock terms; told in emulated ones, which a user asked for.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.core.spec.topology import Link
from testbed.core.units import format_rate, format_time
from testbed.orchestrator.emulation.links.port import Port
from testbed.orchestrator.emulation.shapers.delay import Delay, mean_doubt_s

RATE_TOLERANCE = 0.02
ACCESS_RATE_TOLERANCE = 0.05
DELAY_TOLERANCE = 0.02
MIN_DELAY_TOLERANCE_S = 1e-3


def delay_tolerance_s(asked_s: float) -> float:
    """Of a round trip as of one way."""
    return max(MIN_DELAY_TOLERANCE_S, DELAY_TOLERANCE * asked_s)


def typical_s(delays_s: Sequence[float], ways: Sequence[Delay]) -> float | None:
    """Their mean if there is jitter, since that is what was asked; else the median, which one late probe moves less."""
    if not delays_s:
        return None
    return statistics.fmean(delays_s) if any(way.jitter_s for way in ways) else statistics.median(delays_s)


def _both(link: Link) -> tuple[Delay, Delay]:
    return Delay.of(link.forward), Delay.of(link.backward)


@dataclass
class ProbeResult:
    """Of one stage: round trips by link, delays by link and source, rates by (link, source, target)."""

    stage: str
    rtt_s: dict[str, list[float]] = field(default_factory=dict)
    delay_s: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    span_s: dict[str, float] = field(default_factory=dict)
    """By link, how long probes were sent."""
    bursts: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    steal_ratio: float = 0.0
    """Of a core, what other machines took meanwhile; of the last try."""
    tries: int = 1

    def add_probes(self, link: Link, answer: dict[str, Any]) -> None:
        self.rtt_s[link.name] = answer["rtt_s"]
        self.delay_s[link.name, link.a] = answer["forward_s"]
        self.delay_s[link.name, link.b] = answer["backward_s"]
        self.span_s[link.name] = answer["span_s"]

    def update(self, later: ProbeResult) -> None:
        self.rtt_s.update(later.rtt_s)
        self.delay_s.update(later.delay_s)
        self.span_s.update(later.span_s)
        self.bursts.update(later.bursts)
        self.steal_ratio = later.steal_ratio
        self.tries += 1

    def add_longer(self, later: ProbeResult) -> None:
        """Take round trips from another try, and rates from both, each for as long as the link was full."""
        bursts = {key: _joined(self.bursts[key], burst) for key, burst in later.bursts.items()}
        self.update(later)
        self.bursts.update(bursts)

    def faults(self, ports: list[Port]) -> list[str]:
        """One line for each disagreement beyond tolerance."""
        return [
            f"{port.where}: {said} ({self.stage})"
            for port in ports
            for said in (*self._rate_faults(port), *self._round_trip_faults(port), *self._delay_faults(port))
        ]

    def is_below_rates(self, ports: list[Port]) -> bool:
        """Tell whether a link had less than its rate, by more than the tolerance."""
        rates = [(port, self.bursts[port.key]["rate_bit_s"]) for port in ports if port.key in self.bursts]
        return any(rate is None or rate / port.profile.rate_bit_s - 1 < -_rate_tolerance(port) for port, rate in rates)

    def _rate_faults(self, port: Port) -> Iterator[str]:
        burst = self.bursts.get(port.key)
        if burst is None:
            return
        asked, rate = port.profile.rate_bit_s, burst["rate_bit_s"]
        if rate is None or abs(rate / asked - 1) > _rate_tolerance(port):
            said = "nothing: the link could not be filled" if rate is None else format_rate(rate * port.dilation)
            yield f"asked {format_rate(asked * port.dilation)}, measured {said}"

    def _round_trip_faults(self, port: Port) -> Iterator[str]:
        if port.source == port.link.a and port.link.name in self.rtt_s:
            yield from self._off(port, "a round trip", self.rtt_s[port.link.name], _both(port.link))

    def _delay_faults(self, port: Port) -> Iterator[str]:
        delays_s = self.delay_s.get((port.link.name, port.source))
        if delays_s:  # where none came back, the round trip says so
            yield from self._off(port, "a one-way delay", delays_s, (Delay.of(port.profile),))

    def _off(self, port: Port, what: str, found_s: list[float], ways: tuple[Delay, ...]) -> Iterator[str]:
        asked_s = sum(way.mean_s for way in ways)
        typical = typical_s(found_s, ways)
        allowed_s = delay_tolerance_s(asked_s) + mean_doubt_s(ways, len(found_s), self.span_s[port.link.name])
        if typical is None or abs(typical - asked_s) > allowed_s:
            said = "no answer" if typical is None else format_time(typical / port.dilation)
            yield f"asked {what} of {format_time(asked_s / port.dilation)}, measured {said}"

    def entry(self, port: Port) -> dict[str, Any] | None:
        """What `network.json` says of this stage for a direction; None if it was not measured."""
        name = port.link.name
        burst, round_trips = self.bursts.get(port.key), self.rtt_s.get(name)
        if burst is None and not round_trips:
            return None
        return {
            "stage": self.stage,
            "rate_bit_s": burst["rate_bit_s"] if burst else None,
            "burst": {k: burst[k] for k in ("window_s", "wire_bytes", "drops", "arrived_ratio", "gaps")}
            if burst
            else None,
            "rtt_s": typical_s(round_trips or [], _both(port.link)),
            "rtt_max_s": max(round_trips) if round_trips else None,
            "delay_s": typical_s(self.delay_s.get((name, port.source), []), (Delay.of(port.profile),)),
            "probes": len(round_trips or []),
            "probes_span_s": self.span_s.get(name),
        }


def _joined(first: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Two bursts of one direction as one; of the gaps between packets, the more uneven."""
    both = [burst for burst in (first, later) if burst["rate_bit_s"] is not None]
    if len(both) < 2:
        return later
    window_s = sum(burst["window_s"] for burst in both)
    return {
        **later,
        "rate_bit_s": sum(burst["rate_bit_s"] * burst["window_s"] for burst in both) / window_s,
        "window_s": window_s,
        "wire_bytes": sum(burst["wire_bytes"] for burst in both),
        "drops": sum(burst["drops"] for burst in both),
        "gaps": max((b["gaps"] for b in both if b["gaps"]), key=lambda gaps: gaps["error_p90_ratio"], default=None),
    }


def _rate_tolerance(port: Port) -> float:
    return RATE_TOLERANCE if port.link.wan else ACCESS_RATE_TOLERANCE
