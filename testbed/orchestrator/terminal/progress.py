"""Where a run stands, folded from its events; what the live display draws."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from testbed.core.spec.run_spec import RunSpec
from testbed.core.units import format_rate, format_size, format_time

MISSING = "-"


def number(value: Any) -> float | None:
    """The value if it is a number, None for anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def spoken(value: Any, form: str = "{:.4g}") -> str:
    found = number(value)
    return MISSING if found is None else form.format(found)


def spoken_size(value: Any) -> str:
    found = number(value)
    return MISSING if found is None else format_size(found)


def spoken_rate(value: Any) -> str:
    found = number(value)
    return MISSING if found is None else format_rate(found)


def spoken_time(value: Any) -> str:
    found = number(value)
    return MISSING if found is None else ("0 s" if found == 0 else format_time(found))


def spoken_change(event: dict[str, Any]) -> str:
    """Of a `change` event: what became of a link or a node."""
    before, after = event.get("before") or {}, event.get("after") or {}
    values = (
        f"{name.split('_')[0]} {_spoken_as(name, before.get(name))} -> {_spoken_as(name, after[name])}"
        for name in after
    )
    direction = f" from {event['from']} to {event.get('to')}" if event.get("from") else ""
    where = f"node {event['node']}" if event.get("node") else f"link {event.get('name')}{direction}"
    return f"change: {where}: {', '.join(values) or event.get('what')}"


def _spoken_as(name: str, value: Any) -> str:
    """By the unit in a field's name."""
    if name.endswith("_bit_s"):
        return spoken_rate(value)
    found = number(value)
    if name.endswith("_ratio"):
        return MISSING if found is None else f"{100 * found:.3g}%"
    return spoken_time(found)


@dataclass
class LinkProgress:
    """One direction of a WAN link."""

    name: str
    source: str
    target: str
    asked_rate_bit_s: float
    wire_bytes: float | None = None
    rate_bit_s: float | None = None
    seen_t_s: float | None = None

    def update(self, t_s: float | None, wire_bytes: float | None) -> None:
        if t_s is None or wire_bytes is None:
            return
        if self.seen_t_s is not None and self.wire_bytes is not None and t_s > self.seen_t_s:
            self.rate_bit_s = max(0.0, (wire_bytes - self.wire_bytes) * 8 / (t_s - self.seen_t_s))
        self.seen_t_s, self.wire_bytes = t_s, wire_bytes

    @property
    def use_ratio(self) -> float | None:
        """Share of the asked rate; None before two samples."""
        return None if self.rate_bit_s is None else self.rate_bit_s / self.asked_rate_bit_s


@dataclass
class Progress:
    """The latest of everything. `add` takes any event and ignores what it does not know."""

    spec: RunSpec
    stage: str = "starting"
    started_s: float = field(default_factory=time.monotonic)
    t_s: float | None = None
    steps_of_rank: dict[int, int] = field(default_factory=dict)
    loss_of_rank: dict[int, float] = field(default_factory=dict)
    step_s: float | None = None
    metric_name: str | None = None
    metric: float | None = None
    rtt_s: dict[str, float] = field(default_factory=dict)
    cpu_idle_ratio: float | None = None
    verdict: str | None = None
    reasons: tuple[str, ...] = ()
    links: dict[tuple[str, str, str], LinkProgress] = field(init=False)

    def __post_init__(self) -> None:
        self.links = {
            (link.name, source, target): LinkProgress(link.name, source, target, profile.rate_bit_s)
            for link in self.spec.topology.wan_links
            for source, target, profile in link.directions()
        }

    def add(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        self.t_s = number(event.get("t_s")) if number(event.get("t_s")) is not None else self.t_s
        if kind == "step":
            self._step(event)
        elif kind == "left" and (rank := number(event.get("rank"))) is not None:
            self.steps_of_rank.pop(int(rank), None)
            self.loss_of_rank.pop(int(rank), None)
        elif kind == "evaluation":
            self.metric_name = str(event.get("name") or "metric")
            self.metric = number(event.get("value"))
        elif kind == "link":
            link = self.links.get((str(event.get("name")), str(event.get("from")), str(event.get("to"))))
            if link is not None:
                link.asked_rate_bit_s = number(event.get("rate_bit_s")) or link.asked_rate_bit_s
                link.update(number(event.get("t_s")), number(event.get("wire_bytes")))
        elif kind == "rtt" and (rtt_s := number(event.get("rtt_s"))) is not None:
            self.rtt_s[str(event.get("name"))] = rtt_s
        elif kind == "host":
            self.cpu_idle_ratio = number(event.get("cpu_idle_ratio"))

    def _step(self, event: dict[str, Any]) -> None:
        rank, step, loss = (number(event.get(key)) for key in ("rank", "step", "loss"))
        if rank is not None and step is not None:
            self.steps_of_rank[int(rank)] = int(step)
        if rank is not None and loss is not None:
            self.loss_of_rank[int(rank)] = loss
        self.step_s = number(event.get("step_s"))

    @property
    def step(self) -> int | None:
        """The step that every rank which has reported has taken."""
        return min(self.steps_of_rank.values(), default=None)

    @property
    def loss(self) -> float | None:
        """Mean of the ranks' last batches."""
        return sum(self.loss_of_rank.values()) / len(self.loss_of_rank) if self.loss_of_rank else None

    @property
    def wan_bytes(self) -> float | None:
        """Both ways, all WAN links; None where there is none, or nothing was counted yet."""
        counted = [link.wire_bytes for link in self.links.values() if link.wire_bytes is not None]
        return sum(counted) if counted else None

    @property
    def wan_rate_bit_s(self) -> float | None:
        rates = [link.rate_bit_s for link in self.links.values() if link.rate_bit_s is not None]
        return sum(rates) if rates else None

    def line(self) -> str:
        """The state in one line, for a log."""
        total = f"/{self.spec.steps}" if self.spec.steps else ""
        uses = [f"{link.source}->{link.target} {spoken(link.use_ratio, '{:.0%}')}" for link in self.links.values()]
        fields = [
            f"step {MISSING if self.step is None else self.step}{total}",
            f"loss {spoken(self.loss)}",
            f"{self.metric_name or 'metric'} {spoken(self.metric)}",
            f"WAN {spoken_size(self.wan_bytes)}",
            *([f"link use {', '.join(uses)}"] if uses else []),
            f"CPU idle {spoken(self.cpu_idle_ratio, '{:.0%}')}",
            f"verdict so far {self.verdict or MISSING}",
        ]
        return "  ".join(fields)
