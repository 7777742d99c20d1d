"""A run's events as scalars: the mean of each step over ranks, evaluations, and rates of the WAN links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from testbed.analysis.record.record import is_finite, is_time
from testbed.core.errors import BROKEN

_STEP_FIELDS = {"loss": "train/loss", "step_s": "train/step_s", "late_s": "train/late_s"}
"""Tag by field of a step event, of which ranks have a mean."""
_STEP_SUMS = {"payload_bytes": "train/payload_bytes", "samples": "train/samples"}
"""Tag by field of which ranks have a sum."""
_WAITING_STEPS = 2
"""A step is complete when a rank is this many steps further, even if another rank said nothing: it may be lost."""


@dataclass(frozen=True)
class Scalar:
    tag: str
    value: float
    step: int
    t_s: float
    """Emulated seconds since step 1 began."""


@dataclass
class Scalars:
    """Turns events into scalars, in the order of the record. Units are in the tags."""

    workers: int | None
    """Number of ranks that take each step; None if it is not known."""
    _steps: dict[int, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    _sent: dict[tuple[str, ...], tuple[float, float]] = field(default_factory=dict)
    """(t_s, bytes) of the last sample, by WAN direction."""
    _last_step: int = 0

    def of(self, events: Iterable[Mapping[str, Any]]) -> Iterator[Scalar]:
        """Yield the scalars that these events complete; events that lack a field are passed over."""
        for event in events:
            try:
                yield from self._of_event(event)
            except BROKEN:
                continue

    def rest(self) -> Iterator[Scalar]:
        """Yield what is complete at the end of the run only."""
        for step in sorted(self._steps):
            yield from self._of_step(step)

    def _of_event(self, event: Mapping[str, Any]) -> Iterator[Scalar]:
        kind = event["event"]
        if kind == "step" and is_time(event["t_s"]) and isinstance(event["step"], int):
            self._steps[event["step"]].append(dict(event))
            yield from self._complete(event["step"])
        elif kind == "evaluation" and is_finite(event["value"]) and is_time(event["t_s"]):
            tag = f"evaluation/{event['name']}"
            yield Scalar(f"{tag}/rank_{event['rank']}", event["value"], int(event["step"]), event["t_s"])
        elif kind == "link" and event["wan"] and is_time(event["t_s"]) and event["t_s"] >= 0:
            yield from self._of_link(event)

    def _complete(self, newest: int) -> Iterator[Scalar]:
        for step in sorted(self._steps):
            if len(self._steps[step]) == self.workers or step <= newest - _WAITING_STEPS:
                yield from self._of_step(step)

    def _of_step(self, step: int) -> Iterator[Scalar]:
        events = self._steps.pop(step)
        t_s = max(event["t_s"] for event in events)
        self._last_step = max(self._last_step, step)
        values: dict[str, list[float]] = defaultdict(list)
        for event in events:
            phases = {f"phase_s/{name}": value for name, value in (event.get("phase_s") or {}).items()}
            named = {tag: event.get(key) for key, tag in (_STEP_FIELDS | _STEP_SUMS).items()} | phases
            for tag, value in named.items():
                if is_finite(value):
                    values[tag].append(value)
        for tag, found in values.items():
            yield Scalar(tag, sum(found) if tag in _STEP_SUMS.values() else fmean(found), step, t_s)
        yield Scalar("train/emulated_time_s", t_s, step, t_s)

    def _of_link(self, event: Mapping[str, Any]) -> Iterator[Scalar]:
        way = event["name"], event["from"], event["to"]
        before_s, before = self._sent.get(way, (0.0, 0.0))
        if event["t_s"] > before_s and is_finite(event["wire_bytes"]):
            rate_bit_s = 8 * (event["wire_bytes"] - before) / (event["t_s"] - before_s)
            self._sent[way] = event["t_s"], event["wire_bytes"]
            tag = "/".join(["wan_rate_bit_s", event["name"], f"{event['from']}_to_{event['to']}"])
            yield Scalar(tag, rate_bit_s, self._last_step, event["t_s"])
