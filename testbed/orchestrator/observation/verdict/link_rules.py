"""Rules of the verdict on WAN links: what was measured against what was asked at that moment, in emulated terms."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from testbed.core.record.spoiled_steps import NOTHING, LeftOut
from testbed.core.spec.topology import Link
from testbed.core.units import format_rate, format_time
from testbed.orchestrator.emulation.shapers.delay import Delay, least_s, mean_doubt_s
from testbed.orchestrator.observation.verdict.reference import LinkReference

RATE_SUSPECT, RATE_INVALID = 0.02, 0.05
DELAY_SUSPECT_S, DELAY_SUSPECT_RATIO, DELAY_INVALID_TIMES = 1e-3, 0.02, 3
LATE_S, LATE_RATIO = 2e-3, 0.02
"""A healthy run on two busy cores has a p99 of 0.8 ms, and one second in six above 1 ms."""
LATE_SHARE_SUSPECT, LATE_SHARE_INVALID = 0.05, 0.25
LOSS_DEVIATIONS = 5
GAP_SUSPECT = 1.0
"""Of the 90th percentile. On the development machine 0.16 to 0.33 for packets, 0.04 for super-packets."""
MIN_BUSY_S = 0.5
"""Less time than this with a full queue says nothing about a rate."""
MIN_PROBES = 5

Event = dict[str, Any]
Finding = tuple[bool, str]
"""Whether it makes the run invalid (suspect otherwise), and the reason in words."""
Window = tuple[float, float, float]
"""Time with a full queue: seconds, bytes that left it, and the target rate."""


class Rates:
    """Of full queues: in bursts before training and beside its warm-up, and in training whenever a queue was full."""

    def __init__(self, asked: LinkReference) -> None:
        self._asked = asked
        self._measured: list[Event] = []
        self._windows: dict[tuple[str, str, str], list[tuple[float, Window]]] = defaultdict(list)
        """By direction, in order: when it was, and the window."""

    def add(self, event: Event) -> None:
        if event["event"] == "measurement" and event["name"] in self._asked.links:
            self._measured.append(event)
        elif event["event"] == "link" and event["wan"] and event["busy_s"] > 0:
            name = event["name"]
            if self._asked.is_settled(name, event["t_s"]):
                asked_bit_s = self._asked.profile(name, event["from"]).rate_bit_s
                self._windows[name, event["from"], event["to"]].append(
                    (event["t_s"], (event["busy_s"], event["busy_bytes"], asked_bit_s))
                )

    def _remaining(self, key: tuple[str, str, str], left_out: LeftOut) -> list[Window]:
        return [window for t_s, window in self._windows[key] if not left_out.covers(t_s)]

    def training_rate_bit_s(self, name: str, source: str, target: str, left_out: LeftOut = NOTHING) -> float | None:
        """Rate at which a link's full queue emptied while training; None if it was not full for long enough."""
        windows = self._remaining((name, source, target), left_out)
        busy_s = sum(seconds for seconds, _, _ in windows)
        return sum(size for _, size, _ in windows) * 8 / busy_s if busy_s >= MIN_BUSY_S else None

    def findings(self, left_out: LeftOut = NOTHING) -> Iterator[Finding]:
        for event in self._measured:
            rate_bit_s = event["rate_bit_s"]
            if rate_bit_s is not None:
                link = self._asked.links[event["name"]]
                asked_bit_s = (link.forward if event["from"] == link.a else link.backward).rate_bit_s
                yield from self._finding(
                    (event["name"], event["from"], event["to"]), event["stage"], asked_bit_s, rate_bit_s, 0.0
                )
                yield from self._gaps(event)
        for key in self._windows:
            windows = self._remaining(key, left_out)
            rate_bit_s = self.training_rate_bit_s(*key, left_out)
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


def _error_bit_s(windows: list[Window]) -> float:
    """Standard error of their rate, from their spread: each is short against a queue's bursts."""
    rates = [size * 8 / seconds for seconds, size, _ in windows]
    return statistics.stdev(rates) / len(rates) ** 0.5 if len(rates) > 1 else float("inf")


class RoundTrips:
    """Of probes, both ways and one: the typical one before training and beside its warm-up, the least in training.

    In training probes queue behind traffic, and that wait is the link's. A link that is full both ways may never be
    free of it both ways at once, so the least round trip is the sum of the least of each way.
    """

    def __init__(self, asked: LinkReference) -> None:
        self._asked = asked
        self._measured: list[Event] = []
        self._probes: dict[tuple[str, tuple[Delay, Delay]], list[Event]] = defaultdict(list)
        """By link and what was asked."""
        self.heard: set[str] = set()

    def add(self, event: Event) -> None:
        if event["event"] == "measurement" and event["name"] in self._asked.links:
            self._measured.append(event)
        elif event["event"] == "rtt" and event["t_s"] >= 0:
            name = event["name"]
            self.heard.add(name)
            if self._asked.is_settled(name, event["t_s"]) and not self._asked.reorders(name):
                figures = {key: event[key] for key in ("t_s", "forward_s", "backward_s")}
                self._probes[name, self._asked.delays(name)].append(figures)

    def findings(self, left_out: LeftOut = NOTHING) -> Iterator[Finding]:
        # each direction's measurement holds the round trip: once is enough
        found = [finding for event in self._measured for finding in self._measured_findings(event)]
        found += [
            finding
            for (name, ways), sent in self._probes.items()
            if len(probes := [probe for probe in sent if not left_out.covers(probe["t_s"])]) >= MIN_PROBES
            for finding in self._training_findings(name, ways, probes)
        ]
        yield from dict.fromkeys(found)

    def _measured_findings(self, event: Event) -> Iterator[Finding]:
        link = self._asked.links[event["name"]]
        forward, backward = Delay.of(link.forward), Delay.of(link.backward)
        own = forward if event["from"] == link.a else backward
        for source, ways, key in ((None, (forward, backward), "rtt_s"), (event["from"], (own,), "delay_s")):
            if event[key] is not None:
                asked_s = sum(way.mean_s for way in ways)
                error_s = abs(event[key] - asked_s) - mean_doubt_s(ways, event["probes"], event["probes_span_s"])
                yield from _delay_finding(link, source, asked_s, event[key], error_s, event["stage"])

    def _training_findings(self, name: str, ways: tuple[Delay, Delay], probes: list[Event]) -> Iterator[Finding]:
        link = self._asked.links[name]
        span_s = probes[-1]["t_s"] - probes[0]["t_s"]
        ways_s = [min(probe[key] for probe in probes) for key in ("forward_s", "backward_s")]
        bounds_s = [least_s([way], len(probes), span_s) for way in ways]
        for source, chosen in ((None, (0, 1)), (link.a, (0,)), (link.b, (1,))):
            found_s, asked_s = sum(ways_s[index] for index in chosen), sum(ways[index].asked_s for index in chosen)
            low_s, high_s = (sum(bounds_s[index][side] for index in chosen) for side in (0, 1))
            error_s = max(low_s - found_s, found_s - high_s)
            yield from _delay_finding(link, source, asked_s, found_s, error_s, "training, least")


def _delay_finding(
    link: Link, source: str | None, asked_s: float, found_s: float, error_s: float, stage: str
) -> Iterator[Finding]:
    """Of one way, or without a source of both; `error_s` is what jitter does not explain."""
    allowed_s = max(DELAY_SUSPECT_S, DELAY_SUSPECT_RATIO * asked_s)
    if error_s > allowed_s:
        where = f"link {link.name}"
        if source is not None:
            where += f" from {source} to {link.b if source == link.a else link.a}"
        what = "a round trip" if source is None else "a one-way delay"
        said = f"asked {what} of {format_time(asked_s)}, measured {format_time(found_s)} ({stage})"
        yield error_s > DELAY_INVALID_TIMES * allowed_s, f"{where}: {said}"


class DelayLines:
    """Of the shaper: how late it let packets go, and what it lost."""

    def __init__(self, asked: LinkReference) -> None:
        self._asked = asked
        self._late: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """By link, of each second: its middle, and its 99th percentile over what is allowed."""
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
            middle_s = event["t_s"] - (event.get("interval_s") or 0.0) / 2
            self._late[event["name"]].append((middle_s, event["late_p99_s"] / max(LATE_S, LATE_RATIO * delay_s)))

    def _remaining(self, left_out: LeftOut) -> Iterator[tuple[str, list[float]]]:
        """Yield links and, of each second that remains, the lateness over what is allowed."""
        for name, late in self._late.items():
            if times := [over for middle_s, over in late if not left_out.covers(middle_s)]:
                yield name, times

    def needed_slowdown(self, left_out: LeftOut = NOTHING) -> float:
        """How many times as slow a run had to be for no link to be `invalid` for its lateness, which stays as it is by
        the wall when a run is slowed; 1 where none was."""
        remaining = [late for _, late in self._remaining(left_out)]
        worst = [sorted(late, reverse=True)[int(LATE_SHARE_INVALID * len(late))] for late in remaining]
        return max(1.0, *worst) if worst else 1.0

    def loss_ratio(self, name: str, source: str) -> float | None:
        """Share of packets that the shaper dropped; None for a link without one."""
        event = self._last.get((name, source))
        return event["drops"] / event["packets"] if event and event["packets"] else None

    def findings(self, left_out: LeftOut = NOTHING) -> Iterator[Finding]:
        for name, late in self._remaining(left_out):
            share = statistics.fmean(times > 1 for times in late)
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
