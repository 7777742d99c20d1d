"""The verdict: may the numbers of this run be believed?

A judge folds the run's events, live as well as afterwards from the record, so that both say the same. Every rule has a
threshold above which the run is `suspect` and one above which it is `invalid`, and a reason in words.

| rule | suspect | invalid | why |
| --- | --- | --- | --- |
| WAN rate, idle, busy, in training (past two standard errors) | 2% | 5% | communication time is in proportion to it |
| WAN round trip: median idle and busy, least in training | 1 ms or 2% | 3 times that | collectives follow it |
| seconds with the delay line's p99 later than 1 ms or 1% of the delay | 5% | 25% | late packets are another link |
| packets the delay line dropped against the loss asked | - | 5 standard deviations | another loss |
| a measurement that gave nothing; events that cannot be read | any | - | what is not known is not vouched for |
| packets lost for want of room in the delay line | - | any | a loss nobody asked for |
| cores idle on average during training | below 10% | below 2% | workers wait for cores, not for the network |
| steal during training | 2% | 10% | another machine took the cores |
| wire bytes of all workers over payload | - | below 0.98 | traffic went around the links |
| an interface that is not emulated in a node | - | any | likewise |
| ranks that ended with different parameters | - | any | they trained different models |
| a rank that began late | 50 ms | 0.5 s | the first step holds its lateness |
| the collector's lateness | 1 s | - | its intervals are not what they say |
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from testbed.core.spec import RunSpec
from testbed.core.units import format_rate, format_time

RATE_SUSPECT, RATE_INVALID = 0.02, 0.05
RTT_SUSPECT_S, RTT_SUSPECT_RATIO, RTT_INVALID_TIMES = 1e-3, 0.02, 3
LATE_S, LATE_RATIO = 1e-3, 0.01
LATE_SHARE_SUSPECT, LATE_SHARE_INVALID = 0.05, 0.25
IDLE_SUSPECT, IDLE_INVALID = 0.10, 0.02
STEAL_SUSPECT, STEAL_INVALID = 0.02, 0.10
WIRE_OVER_PAYLOAD_LEAST = 0.98
SAMPLER_LATE_S = 1.0
START_SUSPECT_S, START_INVALID_S = 0.05, 0.5
LEAST_BUSY_S = 0.5
"""Less time than this with a full queue says nothing about a rate."""
LEAST_PROBES = 5

Event = dict[str, Any]


class Judge:
    """Folds events; `verdict()` at any time."""

    def __init__(self, spec: RunSpec) -> None:
        self._links = {link.name: link for link in spec.topology.wan_links}
        self._node_names = {node.name for node in spec.topology.nodes}
        self._measured: list[Event] = []
        self._rtts: dict[str, list[float]] = defaultdict(list)
        self._late: dict[str, list[bool]] = defaultdict(list)
        self._queue_drops: dict[tuple[str, str], int] = {}
        self._passed: dict[tuple[str, str], tuple[int, int]] = {}
        self._windows: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
        self._unread = 0
        self._hosts: list[Event] = []
        self._wire_bytes: dict[tuple[str, str], int] = {}
        self._payload_bytes = 0
        self._foreign: list[str] = []
        self._checksums: set[int] = set()
        self._started_late_s: dict[int, float] = {}
        self._ended = False

    def add(self, event: Event) -> None:
        """Fold an event in. One that cannot be read is a reason, not an end: the record must be sealed all the same."""
        try:
            self._fold(event)
        except (KeyError, TypeError, ValueError):
            self._unread += 1

    def _fold(self, event: Event) -> None:
        kind = event["event"]
        if kind == "measurement":
            self._measured.append(event)
        elif kind == "rtt" and event["t_s"] >= 0:
            self._rtts[event["name"]].append(event["rtt_s"])
        elif kind == "delay_line":
            self._add_delay_line(event)
        elif kind == "link":
            self._add_link(event)
        elif kind == "host" and event["t_s"] > 0:
            self._hosts.append(event)
        elif kind == "step":
            self._payload_bytes += event["payload_bytes"]
        elif kind == "foreign_interface":
            self._foreign.append(f"node {event['node']} has interface {event['interface']}, which is not emulated")
        elif kind == "done" and event.get("parameters_crc32") is not None:
            self._checksums.add(event["parameters_crc32"])
        elif kind == "start":
            self._started_late_s[event["rank"]] = event["late_s"]
        elif kind == "schedule" and event["what"] == "end":
            self._ended = True

    def _add_delay_line(self, event: Event) -> None:
        key = event["name"], event["from"]
        self._passed[key] = (event["packets"], event["drops"])
        self._queue_drops[key] = max(event["queue_drops"], self._queue_drops.get(key, 0))
        if event["late_p99_s"] is not None and event["t_s"] >= 0:
            delay_s = self._links[event["name"]].rtt_s / 2
            self._late[event["name"]].append(event["late_p99_s"] > max(LATE_S, LATE_RATIO * delay_s))

    def _add_link(self, event: Event) -> None:
        if event["wan"]:
            if event["busy_s"] > 0:
                self._windows[event["name"], event["from"], event["to"]].append((event["busy_s"], event["busy_bytes"]))
        elif event["from"] in self._node_names:
            self._wire_bytes[event["name"], event["from"]] = event["wire_bytes"]

    def training_rate_bit_s(self, name: str, source: str, target: str) -> float | None:
        """Rate at which a link's full queue emptied while training; None if it was not full for long enough."""
        windows = self._windows[name, source, target]
        busy_s = sum(seconds for seconds, _ in windows)
        return sum(size for _, size in windows) * 8 / busy_s if busy_s >= LEAST_BUSY_S else None

    def _training_error_bit_s(self, name: str, source: str, target: str) -> float:
        """Standard error of that rate, from the spread of its windows: each is short against a queue's bursts."""
        rates = [size * 8 / seconds for seconds, size in self._windows[name, source, target]]
        return statistics.stdev(rates) / len(rates) ** 0.5 if len(rates) > 1 else float("inf")

    def loss_ratio(self, name: str, source: str, _target: str) -> float | None:
        """Share of packets that the delay line dropped; None for a link without one."""
        packets, drops = self._passed.get((name, source), (0, 0))
        return drops / packets if packets else None

    def verdict(self) -> tuple[str, list[str]]:
        """("valid" | "suspect" | "invalid", reasons), the gravest first."""
        invalid: list[str] = []
        suspect: list[str] = []
        for grave, reason in self._findings():
            (invalid if grave else suspect).append(reason)
        return ("invalid" if invalid else "suspect" if suspect else "valid"), invalid + suspect

    def _findings(self) -> list[tuple[bool, str]]:
        return [
            *self._rates(),
            *self._round_trips(),
            *self._lateness(),
            *self._host(),
            *self._bypass(),
            *self._ranks(),
            *self._unknown(),
        ]

    def _rates(self) -> list[tuple[bool, str]]:
        found = []
        for name, link in self._links.items():
            for source, target, profile in link.directions():
                rates = [
                    (event["stage"], event["rate_bit_s"], 0.0)
                    for event in self._measured
                    if (event["name"], event["from"]) == (name, source) and event["rate_bit_s"] is not None
                ]
                training = self.training_rate_bit_s(name, source, target)
                if training is not None:
                    rates.append(("training", training, 2 * self._training_error_bit_s(name, source, target)))
                asked = profile.rate_bit_s
                for stage, rate, doubt in rates:
                    error = max(0.0, abs(rate - asked) - doubt) / asked
                    if error > RATE_SUSPECT:
                        text = (
                            f"link {name} from {source} to {target}: asked {format_rate(asked)},"
                            f" measured {format_rate(rate)} ({stage})"
                        )
                        found.append((error > RATE_INVALID, text))
        return found

    def _round_trips(self) -> list[tuple[bool, str]]:
        found = []
        for name, link in self._links.items():
            asked = link.rtt_s
            seen = [(e["stage"], e["rtt_s"]) for e in self._measured if e["name"] == name and e["rtt_s"] is not None]
            if len(self._rtts[name]) >= LEAST_PROBES:
                # the least: probes queue behind training traffic, and that wait is the link's, not an error
                seen.append(("training, least", min(self._rtts[name])))
            allowed = max(RTT_SUSPECT_S, RTT_SUSPECT_RATIO * asked)
            for stage, rtt_s in dict.fromkeys(seen):
                if abs(rtt_s - asked) > allowed:
                    measured = f"measured {format_time(rtt_s)} ({stage})"
                    text = f"link {name}: asked a round trip of {format_time(asked)}, {measured}"
                    found.append((abs(rtt_s - asked) > RTT_INVALID_TIMES * allowed, text))
        return found

    def _lateness(self) -> list[tuple[bool, str]]:
        found = []
        for name, late in self._late.items():
            share = statistics.fmean(late)
            if share > LATE_SHARE_SUSPECT:
                text = f"link {name}: packets left the delay line too late in {share:.0%} of the seconds"
                found.append((share > LATE_SHARE_INVALID, text))
        for (name, source), (packets, drops) in self._passed.items():
            link = self._links[name]
            asked = (link.forward if source == link.a else link.backward).loss_ratio
            if abs(drops - asked * packets) > 5 * (asked * (1 - asked) * packets) ** 0.5:
                found.append(
                    (True, f"link {name} from {source}: asked {asked:.3%} loss, {drops} of {packets} packets lost")
                )
        for (name, source), drops in self._queue_drops.items():
            if drops:
                found.append((True, f"link {name} from {source}: the delay line had no room for {drops} packets"))
        return found

    def _host(self) -> list[tuple[bool, str]]:
        if not self._hosts:
            return [(False, "the cores were not observed during training")] if self._ended else []
        found = []
        watched_s = sum(event["interval_s"] for event in self._hosts)
        idle = sum(event["cpu_idle_ratio"] * event["interval_s"] for event in self._hosts) / watched_s
        if idle < IDLE_SUSPECT:
            text = f"the cores were idle only {idle:.1%} of the time: workers waited for each other's cores"
            found.append((idle < IDLE_INVALID, text))
        steal = sum(e["steal_s"] for e in self._hosts) / watched_s
        if steal > STEAL_SUSPECT:
            found.append((steal > STEAL_INVALID, f"another machine took {steal:.1%} of a core (steal)"))
        late = max(event["sampler_late_s"] for event in self._hosts)
        if late > SAMPLER_LATE_S:
            found.append((False, f"the collector took a sample {late:.1f} s late"))
        return found

    def _unknown(self) -> list[tuple[bool, str]]:
        found = []
        for event in self._measured:
            if event["name"] in self._links and None in (event["rate_bit_s"], event["rtt_s"]):
                what = "rate" if event["rate_bit_s"] is None else "round trip"
                found.append(
                    (False, f"link {event['name']} from {event['from']}: no {what} measured ({event['stage']})")
                )
        if self._ended:
            for name in self._links:
                if not self._rtts[name]:
                    found.append((False, f"link {name}: no probe came back during training"))
        if self._unread:
            found.append((False, f"{self._unread} events of the record could not be read"))
        return found

    def _ranks(self) -> list[tuple[bool, str]]:
        found = []
        if len(self._checksums) > 1:
            found.append((True, "ranks ended with different parameters"))
        for rank, late_s in self._started_late_s.items():
            if late_s > START_SUSPECT_S:
                found.append((late_s > START_INVALID_S, f"rank {rank} began {format_time(late_s)} late"))
        return found

    def _bypass(self) -> list[tuple[bool, str]]:
        found = [(True, text) for text in self._foreign]
        wire = sum(self._wire_bytes.values())
        if self._ended and self._payload_bytes and wire < WIRE_OVER_PAYLOAD_LEAST * self._payload_bytes:
            text = f"workers sent {self._payload_bytes} bytes of payload, but {wire} left their interfaces"
            found.append((True, f"{text}: traffic went around the links"))
        return found
