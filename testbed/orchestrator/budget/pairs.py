"""The pairs of a budget, resolved and checked; those that cannot be are refused with the reason, one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError
from testbed.core.spec import RunSpec
from testbed.orchestrator.analysis_process import ask_analysis
from testbed.orchestrator.budget.asked import Asked
from testbed.orchestrator.calibration import Calibration, repeated
from testbed.orchestrator.config import resolve
from testbed.orchestrator.plugin_check import check_all
from testbed.orchestrator.seal import give_to_caller
from testbed.orchestrator.sweep.grid import Point
from testbed.orchestrator.terminal import say

TIME_LIMIT_S = 3600.0
"""Of looking for links; a large model over many workers takes a while."""


@dataclass
class Pair:
    point: Point
    spec: RunSpec | None = None
    epoch_steps: int | None = None
    """None: its workload or its strategy has no epochs."""
    profiles: list[Calibration] = field(default_factory=list)
    refused: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        return {key: self.point.plain[key] for key in ("strategy", "compressor")}

    def question(self) -> dict[str, Any]:
        assert self.spec is not None
        profiles = [{"cpu": one.cpu.to_json(), "device": one.device.to_json()} for one in self.profiles]
        return {"spec": self.spec.to_json(), "profiles": profiles}


def resolved(asked: Asked, runs_root: Path) -> list[Pair]:
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
    if common:
        raise InputError(*common)


def search(pairs: Sequence[Pair], asked: Asked, repeats: int) -> dict[str, Any]:
    """What the analysis says of all that can be simulated, "pairs" in the order of `pairs`; the others are refused.

    Args:
        repeats: how often computing is measured.

    Raises:
        RunError: no answer came.
    """
    answer = _asked_of_analysis([pair for pair in pairs if not pair.refused], asked)
    _refuse(pairs, answer)
    open_ = [pair for pair in pairs if not pair.refused]
    if open_:
        say(f"what {len(open_)} pairs compute is measured {repeats} times each, unless it was; seconds each time")
    for pair in open_:
        if pair.spec is not None:
            _measure(pair, pair.spec, repeats)
    open_ = [pair for pair in open_ if not pair.refused]
    say(f"looking for the least links of {len(open_)} of {len(pairs)} pairs")
    answer = _asked_of_analysis(open_, asked)
    _refuse(pairs, answer)
    found = dict(zip(map(id, open_), answer["pairs"], strict=True))
    return {**answer, "pairs": [found.get(id(pair)) for pair in pairs]}


def _measure(pair: Pair, spec: RunSpec, repeats: int) -> None:
    where = " ".join(f"{key}={name}" for key, name in pair.names.items())
    try:
        pair.profiles = repeated(spec, repeats, _teller(where), give_to_caller)
    except InputError as error:
        pair.refused = tuple(error.faults)


def _teller(where: str) -> Callable[[str], None]:
    return lambda words: say(f"{where}: {words}")


def _refuse(pairs: Sequence[Pair], answer: Mapping[str, Any]) -> None:
    open_ = [pair for pair in pairs if not pair.refused]
    for pair, found in zip(open_, answer["pairs"], strict=True):
        pair.refused = tuple(found["refused"])


def _asked_of_analysis(pairs: Sequence[Pair], asked: Asked) -> dict[str, Any]:
    question = {
        "target_step_s": asked.target_step_s,
        "rtts_s": [one.seconds for one in asked.round_trips],
        "pairs": [pair.question() for pair in pairs],
    }
    found: dict[str, Any] = ask_analysis("budget", question=question, time_limit_s=TIME_LIMIT_S)
    return found
