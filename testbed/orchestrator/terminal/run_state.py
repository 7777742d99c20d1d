"""State of a run, folded from its events; the line that the live display draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.terminal.progress import Progress
from testbed.orchestrator.terminal.spoken import number, spoken, spoken_left, spoken_size, spoken_time
from testbed.orchestrator.terminal.status_line import cut

SET_UP_S, WORKER_SET_UP_S = 6.0, 0.3
"""Seconds from the beginning to the first step, on two cores, and for each worker more."""
SEAL_S = 2.5
"""Seconds from the last step to the table."""
SEPARATOR = " | "
_MOST_NEEDED, _LEAST_STAGE = 3, 12
"""Stage, grade and time left stay together as long as that leaves the stage so many characters."""


@dataclass
class RunState:
    """The latest of everything. `add` takes any event and ignores what it does not know.

    Args:
        steps: Number of steps of the run, if it is known.
        expected_s: Seconds on the wall that all steps are expected to take, for the time before a speed is known.
        cycle: Number of steps from one exchange to the next.
    """

    spec: RunSpec
    began_s: float
    steps: int | None = None
    expected_s: float | None = None
    cycle: int = 1
    stage: str = "starting"
    part: Progress | None = None
    """Progress of one phase, such as a pilot; None while no phase tells any."""
    steps_of_rank: dict[int, int] = field(default_factory=dict)
    loss_of_rank: dict[int, float] = field(default_factory=dict)
    step_s: float | None = None
    metric_name: str | None = None
    metric: float | None = None
    cpu_idle_ratio: float | None = None
    grade: str | None = None
    """The verdict that was said last; None before there is one."""
    wire_bytes: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """Bytes of each direction of a WAN link."""
    training: Progress = field(init=False)
    _trains_since_s: float | None = None

    def __post_init__(self) -> None:
        self.training = Progress("steps", self.steps, self.cycle)

    def add(self, event: dict[str, Any], now_s: float) -> None:
        """Take in one row of `core.record.events`."""
        kind = event.get("event")
        if kind == "step":
            self._step(event, now_s)
        elif kind == "left" and (rank := number(event.get("rank"))) is not None:
            self.steps_of_rank.pop(int(rank), None)
            self.loss_of_rank.pop(int(rank), None)
        elif kind == "evaluation":
            self.metric_name = str(event.get("name") or "metric")
            self.metric = number(event.get("value"))
        elif kind == "link" and event.get("wan") and (wire_bytes := number(event.get("wire_bytes"))) is not None:
            self.wire_bytes[str(event.get("name")), str(event.get("from")), str(event.get("to"))] = wire_bytes
        elif kind == "host":
            self.cpu_idle_ratio = number(event.get("cpu_idle_ratio"))

    def _step(self, event: dict[str, Any], now_s: float) -> None:
        rank, step, loss = (number(event.get(key)) for key in ("rank", "step", "loss"))
        if rank is not None and step is not None:
            self.steps_of_rank[int(rank)] = int(step)
        if rank is not None and loss is not None:
            self.loss_of_rank[int(rank)] = loss
        self.step_s = number(event.get("step_s"))
        if self.step is None:
            return
        if self._trains_since_s is None:
            self._trains_since_s = now_s - self.spec.dilation * (number(event.get("t_s")) or 0.0)
            self.training.at(0, self._trains_since_s)
        self.training.at(self.step, now_s)

    @property
    def step(self) -> int | None:
        """The step that every rank which has reported has taken; None before one has."""
        return min(self.steps_of_rank.values(), default=None)

    @property
    def loss(self) -> float | None:
        """Mean of the ranks' last batches; None before there is one."""
        return sum(self.loss_of_rank.values()) / len(self.loss_of_rank) if self.loss_of_rank else None

    @property
    def wan_bytes(self) -> float | None:
        """Bytes both ways on all WAN links; None where there is none, or nothing was counted yet."""
        return sum(self.wire_bytes.values()) if self.wire_bytes else None

    def left_s(self, now_s: float) -> float | None:
        """Return the seconds until the table, roughly; None if the length of the training cannot be known."""
        if self.steps is None:
            return None
        training_s = self.training.left_s(now_s)
        if training_s is None and self.expected_s is not None:
            passed_s = 0.0 if self._trains_since_s is None else now_s - self._trains_since_s
            training_s = max(self.expected_s - passed_s, self.expected_s * (1 - self.cycle / self.steps))
        if training_s is None:
            return None
        set_up_s = SET_UP_S + WORKER_SET_UP_S * self.spec.workers - (now_s - self.began_s)
        part_s = self.part.left_s(now_s) if self.part is not None else None
        return training_s + SEAL_S + (max(0.0, set_up_s) if self.step is None else 0.0) + (part_s or 0.0)

    def line(self, width: int, now_s: float) -> str:
        """Return the state in one line of at most `width` characters; what matters least is left out first."""
        fields = list(self._fields(now_s))
        while len(line := SEPARATOR.join(words for _, words in fields)) > width and len(fields) > 1:
            if len(fields) <= _MOST_NEEDED and (room := width - len(line) + len(fields[0][1])) >= _LEAST_STAGE:
                fields[0] = (fields[0][0], cut(fields[0][1], room))
                continue
            fields.remove(max(fields, key=lambda one: one[0]))
        return cut(line, width)

    def _fields(self, now_s: float) -> Sequence[tuple[int, str]]:
        """Return what is known, in its order, each with the place at which it is left out: the highest first."""
        of = f"/{self.steps}" if self.steps else ""
        found = [
            (1, self.part.words(now_s) if self.part else self.stage if self.step is None else f"step {self.step}{of}"),
            (4, f"loss {spoken(self.loss)}" if self.loss is not None else ""),
            (5, f"{self.metric_name} {spoken(self.metric)}" if self.metric is not None else ""),
            (6, f"{spoken_time(self.step_s)} a step" if self.step_s is not None else ""),
            (7, f"WAN {spoken_size(self.wan_bytes)}" if self.wan_bytes is not None else ""),
            (8, f"CPU idle {spoken(self.cpu_idle_ratio, '{:.0%}')}" if self.cpu_idle_ratio is not None else ""),
            (3, self.grade or ""),
            (2, spoken_left(self.left_s(now_s))),
        ]
        return [(place, words) for place, words in found if words]
