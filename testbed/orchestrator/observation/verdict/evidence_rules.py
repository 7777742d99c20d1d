"""Rules of the verdict on the record itself: whether what a verdict rests on was seen, from the first step to the last.

They apply once no more events come. What was never seen is a reason against `valid`, and stands among the unknowns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from testbed.core.files import finite
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.observation.verdict.link_rules import Event, Finding

SAMPLES_SILENT_S = 4.0
"""Longest silence of counters that are read each second, by the wall. A reading a second late is a reason by itself."""
PROBES_SILENT_S = 8.0
"""Longest silence of a link's probes, of which two a second are sent: a full queue drops some."""
_ROUND_TRIPS = 4
"""Round trips of the link that a probe may take besides: its own, one in a full queue, and as much again."""
MIN_SAMPLES = 2
"""A run that is over before so many samples says nothing, and is told so by the rule on cores."""
_STAGES = ("idle", "busy")
_WORDS = {
    "host": "counters of the machine",
    "link": "counters of link {}",
    "node": "counters of node {}",
    "tcp": "connections of the nodes",
    "delay_line": "lateness of link {}",
    "rtt": "probes of link {}",
}
_NOT_NEGATIVE = {
    "step": ("step_s", "late_s", "queued_s", "payload_bytes"),
    "host": ("interval_s", "cpu_idle_ratio", "steal_s"),
    "link": ("interval_s", "wire_bytes", "busy_s", "busy_bytes"),
}
"""Figures that cannot be below 0, by kind: one that is would make good for others."""
_Source = tuple[str, str, str]
"""Kind, then name and direction, or node."""


def is_plausible(event: Event) -> bool:
    """Return False if a number in an event is none that a clock or a counter gives: comparisons with NaN hold never."""
    if not all(map(_is_finite, event.values())):
        return False
    figures = (event.get(key) for key in _NOT_NEGATIVE.get(event["event"], ()))
    return all(figure is None or figure >= 0 for figure in figures)


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return finite(value) is not None
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return True


class Evidence:
    """Tells what a record that is whole holds and this one does not.

    Args:
        spec: Names the nodes and links of which something must be known, and the steps.
    """

    def __init__(self, spec: RunSpec) -> None:
        self.dilation = spec.dilation
        self._program = spec.program
        self._nodes = [node.name for node in spec.topology.nodes]
        self._links = {link.name: (link.a, link.b) for link in spec.topology.wan_links}
        self._rtt_s = {link.name: link.rtt_s for link in spec.topology.wan_links}
        self._steps = spec.steps
        self._times: dict[_Source, list[float]] = defaultdict(list)
        self._measured: set[tuple[str, str, str]] = set()
        self._taken: dict[int, set[int]] = defaultdict(set)
        """By rank, the steps that it has told of."""
        self._started: set[int] = set()
        self._done: dict[int, int] = {}
        self._missed: set[int] = set()
        """Ranks that the others have gone on without, at least for a time."""
        self._down: dict[str, list[tuple[float, bool]]] = defaultdict(list)
        """By link: when it went down, or came up."""
        self._end_s = 0.0
        self._metric: str | None = None
        self._is_evaluated = self._has_model = self._has_end = False

    def add(self, event: Event) -> None:
        """Fold an event in."""
        kind, t_s = event["event"], float(event.get("t_s", 0.0))
        if kind in _WORDS:
            about = "" if kind == "tcp" else event.get("name") or event.get("node") or ""  # of many nodes in turn
            self._times[kind, about, event.get("from") or ""].append(t_s)
            if self._program != "training":
                self._end_s = max(self._end_s, t_s)
        elif kind == "measurement":
            self._measured.add((event["name"], event["from"], event["stage"]))
        elif kind == "step" and "step" in event:
            self._taken[event["rank"]].add(event["step"])
            self._end_s = max(self._end_s, t_s)
        elif kind == "start":
            self._started.add(event["rank"])
        elif kind == "schedule" and event["what"] == "end":
            self._has_end = True
        elif kind == "done" and "steps" in event:
            self._done[event["rank"]] = event["steps"]
        elif kind == "left":
            self._missed.add(event["rank"])
        elif kind == "change" and event["what"] in ("down", "up"):
            self._down[event["name"]].append((t_s, event["what"] == "down"))
        elif kind == "model":
            self._has_model, self._metric = True, event.get("metric_name")
        elif kind == "evaluation":
            self._is_evaluated = True

    def missing(self, *, is_emulated: bool) -> Iterator[str]:
        """Yield what is not known, in words.

        Args:
            is_emulated: False on machines of which nobody watched the cores and links.
        """
        if self._program == "training":
            yield from self._missing_steps()
            yield from self._missing_results()
        if is_emulated:
            if not self._has_end:
                yield "the end of the run"
            yield from self._missing_measurements()
            yield from self._silent()

    def findings(self, *, is_emulated: bool) -> Iterator[Finding]:
        """Yield what is not known as reasons."""
        for text in self.missing(is_emulated=is_emulated):
            yield False, f"not in the record: {text}"

    def _missing_steps(self) -> Iterator[str]:
        steps = max(self._done.values(), default=self._steps or 0)
        for rank in range(len(self._nodes)):
            if rank in self._missed:
                continue
            lacking = [step for step in range(1, steps + 1) if step not in self._taken[rank]]
            if lacking:
                yield f"{len(lacking)} of {steps} steps of rank {rank}, the first of them step {lacking[0]}"
            elif not self._taken[rank]:
                yield f"steps of rank {rank}"
            if rank not in self._started:
                yield f"the start of rank {rank}"
            if rank not in self._done:
                yield f"the end of rank {rank}"

    def _missing_results(self) -> Iterator[str]:
        if not self._has_model:
            yield "the model that was trained"
        elif self._metric is not None and not self._is_evaluated:
            yield f"any value of {self._metric}"

    def _missing_measurements(self) -> Iterator[str]:
        for stage in _STAGES if self._program == "training" else _STAGES[:1]:
            for name, ends in self._links.items():
                for source in ends:
                    if (name, source, stage) not in self._measured:
                        yield f"link {name} from {source}, measured {stage}"

    def _silent(self) -> Iterator[str]:
        """Yield what was not heard of for a time, or never."""
        expected: set[_Source] = {("host", "", ""), ("tcp", "", ""), *(("node", node, "") for node in self._nodes)}
        for name, ends in self._links.items():
            expected |= {(kind, name, end) for kind in ("link", "delay_line") for end in ends} | {("rtt", name, "")}
        if self._end_s * self.dilation < MIN_SAMPLES:
            return
        for source in sorted(expected | self._times.keys()):
            begin_s, end_s = max(self._silences(source), key=lambda silence: silence[1] - silence[0])
            most_s = (PROBES_SILENT_S if source[0] == "rtt" else SAMPLES_SILENT_S) / self.dilation
            if source[0] == "rtt":
                most_s += _ROUND_TRIPS * self._rtt_s[source[1]]
            if end_s - begin_s > most_s:
                what = _WORDS[source[0]].format(f"{source[1]} from {source[2]}" if source[2] else source[1])
                yield f"{what} between {begin_s:.0f} and {end_s:.0f} s"

    def _silences(self, source: _Source) -> Iterator[tuple[float, float]]:
        """Yield the times between two events of a source; a link that is down has no probes."""
        times = [0.0, *sorted(t_s for t_s in self._times.get(source, ()) if 0.0 <= t_s < self._end_s), self._end_s]
        changes = self._down[source[1]] if source[0] == "rtt" and source[1] in self._down else []
        for begin_s, end_s in pairwise(times):
            up_s = begin_s
            for at_s, is_down in changes:
                if begin_s <= at_s <= end_s:
                    if is_down:
                        yield up_s, at_s
                    up_s = at_s
            yield up_s if not (changes and _is_down(changes, end_s)) else end_s, end_s


def _is_down(changes: list[tuple[float, bool]], t_s: float) -> bool:
    """Return True if a link was down at `t_s`."""
    return next((is_down for at_s, is_down in reversed(changes) if at_s <= t_s), False)
