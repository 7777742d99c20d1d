"""Rules of the verdict on WAN links: what was measured against what was asked at that moment, in emulated terms."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from testbed.core.units import format_rate, format_time
from testbed.orchestrator.observation.asked import Asked

RATE_SUSPECT, RATE_INVALID = 0.02, 0.05
RTT_SUSPECT_S, RTT_SUSPECT_RATIO, RTT_INVALID_TIMES = 1e-3, 0.02, 3
LATE_S, LATE_RATIO = 1e-3, 0.01
LATE_SHARE_SUSPECT, LATE_SHARE_INVALID = 0.05, 0.25
LOSS_DEVIATIONS = 5
GAP_SUSPECT = 1.0
"""Of the 90th percentile. On the development machine 0.16 to 0.33 for packets, 0.04 for super-packets."""
LEAST_BUSY_S = 0.5
"""Less time than this with a full queue says nothing about a rate."""
LEAST_PROBES = 5

Event = dict[str, Any]
Finding = tuple[bool, str]
"""Whether it makes the run invalid (suspect otherwise), and the reason in words."""


class Rates:
    """Of full queues: in bursts before training and beside its warm-up, and in training whenever a queue was full."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._measured: list[Event] = []
        self._windows: dict[tuple[str, str, str], list[tuple[float, float, float]]] = defaultdict(list)

    def add(self, event: Event) -> None:
        if event["event"] == "measurement" and event["name"] in self._asked.links:
            self._measured.append(event)
        elif event["event"] == "link" and event["wan"] and event["busy_s"] > 0:
            name = event["name"]
            if self._asked.is_settled(name, event["t_s"]):
                asked_bit_s = self._asked.profile(name, event["from"]).rate_bit_s
                self._windows[name, event["from"], event["to"]].append(
                    (event["busy_s"], event["busy_bytes"], asked_bit_s)
                )

    def training_rate_bit_s(self, name: str, source: str, target: str) -> float | None:
        """Rate at which a link's full queue emptied while training; None if it was not full for long enough."""
        windows = self._windows[name, source, target]
        busy_s = sum(seconds for seconds, _, _ in windows)
        return sum(size for _, size, _ in windows) * 8 / busy_s if busy_s >= LEAST_BUSY_S else None

    def findings(self) -> Iterator[Finding]:
        for event in self._measured:
            rate_bit_s = event["rate_bit_s"]
            if rate_bit_s is not None:
                link = self._asked.links[event["name"]]
                asked_bit_s = (link.forward if event["from"] == link.a else link.backward).rate_bit_s
                yield from self._finding(
                    (event["name"], event["from"], event["to"]), event["stage"], asked_bit_s, rate_bit_s, 0.0
                )
                yield from self._gaps(event)
        for key, windows in self._windows.items():
            rate_bit_s = self.training_rate_bit_s(*key)
            if rate_bit_s is not None:
                # the mean of what was asked, over the same time
                asked_bit_s = sum(s * asked for s, _, asked in windows) / sum(s for s, _, _ in windows)
                yield from self._finding(key, "training", asked_bit_s, rate_bit_s, 2 * _error_bit_s(windows))

    @staticmethod
    def _gaps(event: Event) -> Iterator[Finding]:
        gaps = (event.get("burst") or {}).get("gaps")
        if gaps and gaps["error_p90_ratio"] > GAP_SUSPECT:
            where = f"link {event['name']} from {event['from']} to {event['to']}"
            said = f"a tenth of the gaps between packets is off by more than {gaps['error_p90_ratio']:.0%}"
            yield False, f"{where}: {said} ({event['stage']})"

    @staticmethod
    def _finding(
        key: tuple[str, str, str], stage: str, asked_bit_s: float, rate_bit_s: float, doubt_bit_s: float
    ) -> Iterator[Finding]:
        error = max(0.0, abs(rate_bit_s - asked_bit_s) - doubt_bit_s) / asked_bit_s
        if error > RATE_SUSPECT:
            name, source, target = key
            said = f"asked {format_rate(asked_bit_s)}, measured {format_rate(rate_bit_s)} ({stage})"
            yield error > RATE_INVALID, f"link {name} from {source} to {target}: {said}"


def _error_bit_s(windows: list[tuple[float, float, float]]) -> float:
    """Standard error of their rate, from their spread: each is short against a queue's bursts."""
    rates = [size * 8 / seconds for seconds, size, _ in windows]
    return statistics.stdev(rates) / len(rates) ** 0.5 if len(rates) > 1 else float("inf")


class RoundTrips:
    """Of probes: the median before training and beside its warm-up, the least in training."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._measured: list[Event] = []
        self._probes: dict[tuple[str, float], list[float]] = defaultdict(list)
        """By link and what was asked; in training probes queue behind traffic, and that wait is the link's."""
        self.heard: set[str] = set()

    def add(self, event: Event) -> None:
        if event["event"] == "measurement" and event["name"] in self._asked.links:
            self._measured.append(event)
        elif event["event"] == "rtt" and event["t_s"] >= 0:
            name = event["name"]
            self.heard.add(name)
            if self._asked.is_settled(name, event["t_s"]) and not self._asked.reorders(name):
                self._probes[name, self._asked.rtt_s(name)].append(event["rtt_s"])

    def findings(self) -> Iterator[Finding]:
        seen = [
            (event["name"], self._asked.links[event["name"]].rtt_s, event["stage"], event["rtt_s"])
            for event in self._measured
            if event["rtt_s"] is not None
        ]
        seen += [
            (name, asked_s, "training, least", min(found))
            for (name, asked_s), found in self._probes.items()
            if len(found) >= LEAST_PROBES
        ]
        for name, asked_s, stage, rtt_s in dict.fromkeys(seen):
            allowed_s = max(RTT_SUSPECT_S, RTT_SUSPECT_RATIO * asked_s)
            # jitter makes the least of many smaller, and a median of few uncertain
            error_s = abs(rtt_s - asked_s) - self._asked.jitter_s(name)
            if error_s > allowed_s:
                said = f"asked a round trip of {format_time(asked_s)}, measured {format_time(rtt_s)} ({stage})"
                yield error_s > RTT_INVALID_TIMES * allowed_s, f"link {name}: {said}"


class DelayLines:
    """Of the shaper: how late it let packets go, and what it lost."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._late: dict[str, list[bool]] = defaultdict(list)
        self._last: dict[tuple[str, str], Event] = {}
        self._no_room: dict[tuple[str, str], int] = {}

    def add(self, event: Event) -> None:
        if event["event"] != "delay_line":
            return
        key = event["name"], event["from"]
        self._last[key] = event
        self._no_room[key] = max(event.get("queue_drops") or 0, self._no_room.get(key, 0))
        if event["late_p99_s"] is not None and event["t_s"] >= 0:
            delay_s = self._asked.profile(event["name"], event["from"]).delay_s
            self._late[event["name"]].append(event["late_p99_s"] > max(LATE_S, LATE_RATIO * delay_s))

    def loss_ratio(self, name: str, source: str) -> float | None:
        """Share of packets that the shaper dropped; None for a link without one."""
        event = self._last.get((name, source))
        return event["drops"] / event["packets"] if event and event["packets"] else None

    def findings(self) -> Iterator[Finding]:
        for name, late in self._late.items():
            share = statistics.fmean(late)
            if share > LATE_SHARE_SUSPECT:
                text = f"link {name}: packets left the delay line too late in {share:.0%} of the seconds"
                yield share > LATE_SHARE_INVALID, text
        for (name, source), event in self._last.items():
            asked, variance = event.get("asked_drops", 0.0), event.get("asked_drops_variance", 0.0)
            if abs(event["drops"] - asked) > LOSS_DEVIATIONS * variance**0.5 + 0.5:
                text = f"{asked:.0f} of {event['packets']} packets were to be lost, {event['drops']} were"
                yield True, f"link {name} from {source}: {text}"
            if self._no_room[name, source]:
                text = f"the delay line had no room for {self._no_room[name, source]} packets"
                yield True, f"link {name} from {source}: {text}"
