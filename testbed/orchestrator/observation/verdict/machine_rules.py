"""Rules of the verdict on the machine and on what ran on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
_AGREE = "the strategy has to make them equal in `finish`, or to declare `agreement` (docs/plug-ins.md)"
START_SUSPECT_S, START_INVALID_S = 0.05, 0.5


class Cores:
    """Tells if workers and links had the cores they needed, on average and in each second."""

    def __init__(self) -> None:
        self._hosts: list[Event] = []
        self._starved = StarvedSeconds()
        self._throttled_s: dict[str, float] = {}

    def add(self, event: Event) -> None:
        if event["event"] == "host":
            self._starved.add(event)
            if event["t_s"] > 0:
                self._hosts.append(event)
        elif event["event"] == "node" and event["throttled_s"] is not None:
            self._throttled_s[event["node"]] = event["throttled_s"]

    @property
    def watched_s(self) -> float:
        return float(sum(event["interval_s"] for event in self._hosts))

    @property
    def idle_ratio(self) -> float:
        """Mean idle share of all cores; 1 where nothing was seen."""
        idle_s = sum(event["cpu_idle_ratio"] * event["interval_s"] for event in self._hosts)
        return idle_s / self.watched_s if self._hosts else 1.0

    @property
    def are_never_idle(self) -> bool:
        """True if the cores alone make a run `invalid`."""
        return self.watched_s >= MIN_WATCHED_S and self.idle_ratio < IDLE_INVALID

    def findings(self, *, is_paced: bool = False) -> Iterator[Finding]:
        """Yield what the cores lacked.

        Args:
            is_paced: how late workers were is known; that somebody waited for a core is no finding then, and that
                another machine took some of one is a lesser one.
        """
        if self.watched_s < MIN_WATCHED_S:
            return
        idle = self.idle_ratio
        if idle < IDLE_SUSPECT:
            text = f"the cores were idle only {idle:.1%} of the time: workers waited for each other's cores"
            yield idle < IDLE_INVALID, text
        if not is_paced:
            yield from self._pressure()
            yield from self._starved.findings(self.watched_s)
        steal = sum(event["steal_s"] for event in self._hosts) / self.watched_s
        suspect, invalid = (PACED_STEAL_SUSPECT, PACED_STEAL_INVALID) if is_paced else (STEAL_SUSPECT, STEAL_INVALID)
        if steal > suspect:
            yield steal > invalid, f"another machine took {steal:.1%} of a core (steal)"
        late_s = max(event["sampler_late_s"] for event in self._hosts)
        if late_s > SAMPLER_LATE_S:
            yield False, f"the collector took a sample {late_s:.1f} s late"
        for node, throttled_s in self._throttled_s.items():
            share = throttled_s / self.watched_s
            if share > THROTTLED_SUSPECT:
                yield (
                    share > THROTTLED_INVALID,
                    f"node {node}: a quota of its cgroup stopped it {share:.1%} of the time",
                )

    def _pressure(self) -> Iterator[Finding]:
        """A kernel without pressure figures reports none; then idle time alone speaks (see `unknowns`)."""
        known = [event["cpu_pressure_s"] for event in self._hosts if event.get("cpu_pressure_s") is not None]
        share = max(known, default=0.0) / self.watched_s
        if share > PRESSURE_SUSPECT:
            yield share > PRESSURE_INVALID, f"somebody waited for a core in {share:.0%} of the time (pressure)"


class StarvedSeconds:
    """Seconds in which cores were short: the mean of a long run hides twenty of them, its steps do not.

    Cores that are never idle may all the same suffice, so seconds without idle time are cause for doubt only. Those in
    which somebody waited for a core nearly throughout are more. On the development machine, with pressures of 50% to
    99%, workers computed three to seven times as long as alone, and most steps took 3% to 16% longer; with no idle time
    and a pressure of 20% to 35%, 3% to 9%. Where nothing else ran, the default topologies showed idle times of 45% to
    98% and pressures of 1% to 27% in every second.
    """

    def __init__(self) -> None:
        self._pressure_s = 0.0
        self._short_s = self._grave_s = 0.0
        self._first_t_s: float | None = None

    def add(self, event: Event) -> None:
        """A `host` event, those before the first step too: pressure is a counter."""
        interval_s, pressure = event["interval_s"], 0.0
        if event.get("cpu_pressure_s") is not None and interval_s > 0:
            pressure = (event["cpu_pressure_s"] - self._pressure_s) / interval_s
            self._pressure_s = event["cpu_pressure_s"]
        if event["t_s"] <= 0:
            return
        if event["cpu_idle_ratio"] < IDLE_SUSPECT or pressure > PRESSURE_SUSPECT:
            self._short_s += interval_s
            self._first_t_s = event["t_s"] if self._first_t_s is None else self._first_t_s
        if pressure > PRESSURE_INVALID:
            self._grave_s += interval_s

    def findings(self, watched_s: float) -> Iterator[Finding]:
        if self._short_s >= MIN_STARVED_S and self._short_s > STARVED_SHARE_SUSPECT * watched_s:
            how = f"idle below {IDLE_SUSPECT:.0%} or pressure above {PRESSURE_SUSPECT:.0%}"
            grave = f"pressure above {PRESSURE_INVALID:.0%} in {self._grave_s:.0f} s"
            seconds = f"{self._short_s:.0f} of {watched_s:.0f} s, first at {self._first_t_s:.0f} s"
            text = f"the cores were short in {seconds} ({how}; {grave})"
            yield self._grave_s > STARVED_SHARE_INVALID * watched_s, text


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

    def add(self, event: Event) -> None:
        if event["event"] == "foreign_interface":
            self._foreign.append(f"node {event['node']} has interface {event['interface']}, which is not emulated")
        elif event["event"] in ("step", "payload"):
            self._payload_bytes += event["payload_bytes"]
        elif event["event"] == "link" and not event["wan"] and event["from"] in self._nodes:
            self._wire_bytes[event["name"], event["from"]] = event["wire_bytes"]

    def findings(self, has_ended: bool) -> Iterator[Finding]:
        for text in self._foreign:
            yield True, text
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
