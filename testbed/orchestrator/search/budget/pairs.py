"""The pairs of a budget, resolved and checked; those that cannot be are refused with the reason, one by one."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.run.dilation.calibration import Calibration
from testbed.orchestrator.run.questions.plugins import check_all
from testbed.orchestrator.search.budget.fixed_point import measured, settled
from testbed.orchestrator.search.budget.request import BudgetRequest
from testbed.orchestrator.search.plan.analysis_client import ask_analysis
from testbed.orchestrator.search.sweep.grid import Point
from testbed.orchestrator.terminal.status_line import Following
from testbed.orchestrator.terminal.terminal import say

TIME_LIMIT_S = 3600.0
"""Of looking for links; a large model over many workers takes a while."""


@dataclass
class Pair:
    point: Point
    spec: RunSpec | None = None
    epoch_steps: int | None = None
    """None: its workload or its strategy has no epochs."""
    profiles: list[Calibration] = field(default_factory=list)
    near: list[Calibration] | None = None
    """With what it sends over slow links, where that is not the same."""
    refused: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        return {key: self.point.plain[key] for key in ("strategy", "compressor")}

    def question(self, asked: BudgetRequest) -> dict[str, Any]:
        rtts_s = [one.seconds for one in asked.round_trips]
        return self._question(self.profiles, rtts_s, [None] * len(rtts_s))

    def measure(self, asked: BudgetRequest, repeats: int, tell: Callable[[str], None]) -> None:
        """Measure what it computes.

        Args:
            tell: Is told what takes seconds.
        """
        assert self.spec is not None
        try:
            found = measured(
                self.spec, [one.seconds for one in asked.round_trips], repeats, lambda text: tell(self._named(text))
            )
        except InputError as error:
            self.refused = tuple(error.faults)
            return
        self.profiles, self.near = found.far, found.near

    def settled(self, asked: BudgetRequest, near: Sequence[Calibration]) -> list[dict[str, Any]]:
        """The points with what is sent over their own links."""

        def look(profiles: Sequence[Calibration], rtt_s: float, rate_bit_s: float | None) -> dict[str, Any]:
            answer = _asked_of_analysis([self._question(profiles, [rtt_s], [rate_bit_s])], asked)
            found: dict[str, Any] = answer["pairs"][0]["points"][0]
            return found

        assert self.spec is not None
        return [
            settled(self.spec, near, one.seconds, look, lambda text: say(self._named(text)))
            for one in asked.round_trips
        ]

    def _question(
        self, profiles: Sequence[Calibration], rtts_s: Sequence[float], rates_bit_s: Sequence[float | None]
    ) -> dict[str, Any]:
        assert self.spec is not None
        told = [{"cpu": one.cpu.to_json(), "device": one.device.to_json()} for one in profiles]
        return {"spec": self.spec.to_json(), "profiles": told, "rtts_s": rtts_s, "rates_bit_s": rates_bit_s}

    def _named(self, words: str) -> str:
        return f"{' '.join(f'{key}={name}' for key, name in self.names.items())}: {words}"


def resolved(asked: BudgetRequest, runs_root: Path) -> list[Pair]:
    """Each with its spec, over links with the first round trip, or with why it cannot be.

    Raises:
        InputError: what is at fault in all of them.
    """
    pairs = [Pair(point) for point in asked.pairs]
    for pair in pairs:
        found = resolve(asked.overrides(pair.point, asked.round_trips[0].value), emulated=False, runs_root=runs_root)
        if found.faults:
            pair.refused = found.faults
        else:
            pair.spec = dataclasses.replace(found.spec, auto_dilation=False)  # what is predicted is not slowed down
    _raise_common(pairs)
    checked = [pair for pair in pairs if pair.spec is not None and pair.spec.program == "training"]
    for pair, answer in zip(checked, check_all([pair.spec for pair in checked if pair.spec]), strict=True):
        pair.refused = tuple(map(str, answer["faults"]))
        if not pair.refused and pair.spec is not None:
            pair.epoch_steps = answer["epoch_steps"]
            pair.spec = dataclasses.replace(
                pair.spec, data_hash=answer.get("data_hash"), start_hash=answer.get("start_hash")
            )
    _raise_common(pairs)
    return pairs


def _raise_common(pairs: Sequence[Pair]) -> None:
    common = [fault for fault in pairs[0].refused if all(fault in pair.refused for pair in pairs)]
    if not common and all(pair.spec is None for pair in pairs):
        common = [fault for pair in pairs for fault in pair.refused]  # each has a fault of its own
    if common:
        raise InputError(*dict.fromkeys(common))


def search(pairs: Sequence[Pair], asked: BudgetRequest, repeats: int) -> dict[str, Any]:
    """What the analysis says of all that can be simulated, "pairs" in the order of `pairs`; the others are refused.

    Args:
        repeats: how often computing is measured, two at least.

    Raises:
        RunError: no answer came.
    """
    _refuse(pairs, _asked_of_analysis([pair.question(asked) for pair in pairs if not pair.refused], asked))
    open_ = [pair for pair in pairs if not pair.refused]
    if open_:
        say(f"what {len(open_)} pairs compute is measured {max(2, repeats)} times, unless it was; seconds each time")
    with Following("pairs", len(open_), sys.stderr) as following:
        for number, pair in enumerate(open_):
            following.at(number)
            pair.measure(asked, repeats, following.tell)
    open_ = [pair for pair in open_ if not pair.refused]
    say(f"looking for the least links of {len(open_)} of {len(pairs)} pairs")
    answer = _asked_of_analysis([pair.question(asked) for pair in open_], asked)
    _refuse(pairs, answer)
    for pair, found in zip(open_, answer["pairs"], strict=True):
        if pair.near is not None and not pair.refused:
            found["points"] = pair.settled(asked, pair.near)
    found_of = dict(zip(map(id, open_), answer["pairs"], strict=True))
    return {**answer, "pairs": [found_of.get(id(pair)) for pair in pairs]}


def _refuse(pairs: Sequence[Pair], answer: Mapping[str, Any]) -> None:
    open_ = [pair for pair in pairs if not pair.refused]
    for pair, found in zip(open_, answer["pairs"], strict=True):
        pair.refused = tuple(found["refused"])


def _asked_of_analysis(questions: Sequence[dict[str, Any]], asked: BudgetRequest) -> dict[str, Any]:
    question = {"target_step_s": asked.target_step_s, "pairs": list(questions)}
    found: dict[str, Any] = ask_analysis("budget", question=question, time_limit_s=TIME_LIMIT_S)
    return found
