"""Rules of the verdict on the machine and on what ran on it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.core.record.spoiled_steps import NOTHING, LeftOut
from testbed.core.units import format_time
from testbed.orchestrator.observation.verdict.link_rules import Event, Finding

IDLE_SUSPECT, IDLE_INVALID = 0.10, 0.02
PRESSURE_SUSPECT, PRESSURE_INVALID = 0.5, 0.85
STARVED_SHARE_SUSPECT, STARVED_SHARE_INVALID = 0.10, 0.25
MIN_STARVED_S = 2.0
"""A hiccup of a second is no finding however short the run; the means bear it."""
STEAL_SUSPECT, STEAL_INVALID = 0.02, 0.10
PACED_STEAL_SUSPECT, PACED_STEAL_INVALID = 0.10, 0.30
"""Lateness through it is judged as lateness; the rest that it adds to a step was measured (decision 0014)."""
THROTTLED_SUSPECT, THROTTLED_INVALID = 0.01, 0.10
SAMPLER_LATE_S = 1.0
MIN_WATCHED_S = 2.0
"""A run that is over sooner says nothing about its cores."""
MIN_WIRE_OVER_PAYLOAD = 0.98
MAX_MET_BYTES = 1 << 16
"""Put down at the rendezvous while training, by all nodes: those that come back need a few hundred each."""
_AGREE = "the strategy has to make them equal in `finish`, or to declare `agreement` (docs/plug-ins.md)"
START_SUSPECT_S, START_INVALID_S = 0.05, 0.5


@dataclass(frozen=True)
class _Second:
    """One `host` event."""

    event: Event
    pressure_s: float
    """Seconds since the event before in which somebody waited for a core; 0 if the kernel does not say."""

    @property
    def interval_s(self) -> float:
        return float(self.event["interval_s"])

    @property
    def pressure(self) -> float:
        return self.pressure_s / self.interval_s if self.interval_s > 0 else 0.0


class Cores:
    """Tells if workers and links had the cores they needed, on average and in each second."""

    def __init__(self) -> None:
        self._seconds: list[_Second] = []
        self._pressure_s: float | None = None
        """As the last event counted it."""
        self._throttled_s: dict[str, float] = {}

    def add(self, event: Event) -> None:
        if event["event"] == "host":
            pressure_s = event.get("cpu_pressure_s")
            waited_s = 0.0 if pressure_s is None else pressure_s - (self._pressure_s or 0.0)
            self._pressure_s = self._pressure_s if pressure_s is None else pressure_s
            if event["t_s"] > 0:
                self._seconds.append(_Second(event, waited_s))
        elif event["event"] == "node" and event["throttled_s"] is not None:
            self._throttled_s[event["node"]] = event["throttled_s"]

    @property
    def watched_s(self) -> float:
        return _length_s(self._seconds)

    def idle_ratio(self, left_out: LeftOut = NOTHING) -> float:
        """Return the mean idle share of all cores; 1 where nothing, or too little, was seen."""
        seconds = self._remaining(left_out)
        if self.watched_s < MIN_WATCHED_S or not seconds:
            return 1.0
        idle_s = sum(float(second.event["cpu_idle_ratio"]) * second.interval_s for second in seconds)
        return idle_s / _length_s(seconds)

    def _remaining(self, left_out: LeftOut) -> list[_Second]:
        return [second for second in self._seconds if not left_out.covers(second.event["t_s"])]

    def findings(self, *, is_paced: bool = False, left_out: LeftOut = NOTHING) -> Iterator[Finding]:
        """Yield what the cores lacked.

        Args:
            is_paced: how late workers were is known; that somebody waited for a core is no finding then, and that
                another machine took some of one is a lesser one.
            left_out: seconds of which no step remains count for nothing, but for a quota, which is the run's own.
        """
        seconds = self._remaining(left_out)
        if self.watched_s < MIN_WATCHED_S or not (remaining_s := _length_s(seconds)):
            return
        idle = self.idle_ratio(left_out)
        if idle < IDLE_SUSPECT:
            text = f"the cores were idle only {idle:.1%} of the time: workers waited for each other's cores"
            yield idle < IDLE_INVALID, text
        if not is_paced:
            yield from self._pressure(seconds)
            yield from _starved(seconds)
        steal = sum(second.event["steal_s"] for second in seconds) / remaining_s
        suspect, invalid = (PACED_STEAL_SUSPECT, PACED_STEAL_INVALID) if is_paced else (STEAL_SUSPECT, STEAL_INVALID)
        if steal > suspect:
            yield steal > invalid, f"another machine took {steal:.1%} of a core (steal)"
        late_s = max(second.event["sampler_late_s"] for second in seconds)
        if late_s > SAMPLER_LATE_S:
            yield False, f"the collector took a sample {late_s:.1f} s late"
        for node, throttled_s in self._throttled_s.items():
            share = throttled_s / self.watched_s
            if share > THROTTLED_SUSPECT:
                yield (
                    share > THROTTLED_INVALID,
                    f"node {node}: a quota of its cgroup stopped it {share:.1%} of the time",
                )

    def _pressure(self, remaining: Sequence[_Second]) -> Iterator[Finding]:
        """A kernel without pressure figures reports none; then idle time alone speaks (see `unknowns`).

        What was counted before the first step counts too.
        """
        known = [second.event.get("cpu_pressure_s") for second in self._seconds]
        gone_s = math.fsum(second.pressure_s for second in self._seconds) - math.fsum(s.pressure_s for s in remaining)
        waited_s = max((pressure_s for pressure_s in known if pressure_s is not None), default=0.0) - gone_s
        share = waited_s / _length_s(remaining)
        if share > PRESSURE_SUSPECT:
            yield share > PRESSURE_INVALID, f"somebody waited for a core in {share:.0%} of the time (pressure)"


def _length_s(seconds: Sequence[_Second]) -> float:
    return float(sum(second.interval_s for second in seconds))


def _starved(seconds: Sequence[_Second]) -> Iterator[Finding]:
    """Seconds in which cores were short: the mean of a long run hides twenty of them, its steps do not.

    Cores that are never idle may all the same suffice, so seconds without idle time are cause for doubt only. Those in
    which somebody waited for a core nearly throughout are more. On the development machine, with pressures of 50% to
    99%, workers computed three to seven times as long as alone, and most steps took 3% to 16% longer; with no idle time
    and a pressure of 20% to 35%, 3% to 9%. Where nothing else ran, the default topologies showed idle times of 45% to
    98% and pressures of 1% to 27% in every second.
    """
    watched_s = _length_s(seconds)
    short = [s for s in seconds if s.event["cpu_idle_ratio"] < IDLE_SUSPECT or s.pressure > PRESSURE_SUSPECT]
    short_s = _length_s(short)
    grave_s = _length_s([second for second in seconds if second.pressure > PRESSURE_INVALID])
    if short_s >= MIN_STARVED_S and short_s > STARVED_SHARE_SUSPECT * watched_s:
        how = f"idle below {IDLE_SUSPECT:.0%} or pressure above {PRESSURE_SUSPECT:.0%}"
        grave = f"pressure above {PRESSURE_INVALID:.0%} in {grave_s:.0f} s"
        told = f"{short_s:.0f} of {watched_s:.0f} s, first at {short[0].event['t_s']:.0f} s"
        text = f"the cores were short in {told} ({how}; {grave})"
        yield grave_s > STARVED_SHARE_INVALID * watched_s, text


class Backlogs:
    """Tells if the kernel itself lost packets between two interfaces."""

    def __init__(self) -> None:
        self._dropped = 0

    def add(self, event: Event) -> None:
        if event["event"] == "host" and event["t_s"] > 0:
            self._dropped = max(self._dropped, event.get("softnet_dropped") or 0)

    def findings(self) -> Iterator[Finding]:
        if self._dropped:
            text = f"{self._dropped} packets found no room in a processor's backlog (softnet)"
            yield True, f"{text}: a loss that nobody asked for and no link counts; the count is the whole machine's"


class Bypass:
    """Tells if traffic could go, or went, around the links."""

    def __init__(self, nodes: set[str]) -> None:
        self._nodes = nodes
        self._foreign: list[str] = []
        self._payload_bytes = 0
        self._wire_bytes: dict[tuple[str, str], int] = {}
        self._met_bytes = 0
        self._refused: dict[str, int] = {}

    def add(self, event: Event) -> None:
        if event["event"] == "foreign_interface":
            self._foreign.append(f"node {event['node']} has interface {event['interface']}, which is not emulated")
        elif event["event"] == "rendezvous":
            self._met_bytes += event["training_bytes"]
            self._refused[event["node"]] = event["refused"]
        elif event["event"] in ("step", "payload"):
            self._payload_bytes += event["payload_bytes"]
        elif event["event"] == "link" and not event["wan"] and event["from"] in self._nodes:
            self._wire_bytes[event["name"], event["from"]] = event["wire_bytes"]

    def findings(self, has_ended: bool) -> Iterator[Finding]:
        for text in self._foreign:
            yield True, text
        if self._met_bytes > MAX_MET_BYTES:
            text = f"nodes put down {self._met_bytes} bytes at the rendezvous while training"
            yield True, f"{text}: traffic went around the links"
        for node, count in self._refused.items():
            if count:
                yield False, f"node {node}: {count} of its requests at the rendezvous were refused"
        wire = sum(self._wire_bytes.values())
        if has_ended and self._payload_bytes and wire < MIN_WIRE_OVER_PAYLOAD * self._payload_bytes:
            text = f"workers sent {self._payload_bytes} bytes of payload, but {wire} left their interfaces"
            yield True, f"{text}: traffic went around the links"


class Ranks:
    """Tells if all ranks trained the same model from the same moment."""

    def __init__(self) -> None:
        self._checksums: set[int] = set()
        self._started_late_s: dict[int, float] = {}

    def add(self, event: dict[str, Any]) -> None:
        if event["event"] == "done" and event.get("parameters_crc32") is not None:
            self._checksums.add(event["parameters_crc32"])
        elif event["event"] == "start":
            self._started_late_s[event["rank"]] = event["late_s"]

    def findings(self, *, is_paced: bool = False) -> Iterator[Finding]:
        """Yield how ranks differed.

        Args:
            is_paced: a late beginning is made good like a late phase, and what is not counts among those.
        """
        if len(self._checksums) > 1:
            yield True, f"ranks ended with different parameters; {_AGREE}"
        if is_paced:
            return
        late = {rank: late_s for rank, late_s in self._started_late_s.items() if late_s > START_SUSPECT_S}
        if late:
            latest = max(late, key=lambda rank: late[rank])
            others = f", and {len(late) - 1} others late too" if len(late) > 1 else ""
            yield late[latest] > START_INVALID_S, f"rank {latest} began {format_time(late[latest])} late{others}"
