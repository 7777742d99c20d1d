"""The specs of a sweep's points: all are resolved and checked, with every fault at once, before anything is built."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError, MachineError
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import Resolved, resolve
from testbed.orchestrator.run import preflight
from testbed.orchestrator.run.questions.plugins import check_all
from testbed.orchestrator.run.questions.replay_needs import memory_faults
from testbed.orchestrator.run.run_command import machine_checks
from testbed.orchestrator.search.sweep.grid import Point


@dataclass(frozen=True)
class RunRequest:
    """A run that a sweep is to have, and the points that ask for it: several where they come to the same."""

    spec: RunSpec
    points: tuple[Point, ...]
    steps: int | None = None
    """Number of optimizer steps, those of its epochs among them; None if it is no training of ours."""

    @property
    def label(self) -> str:
        return self.points[0].label


def ask_all(points: Sequence[Point], runs_root: Path, *, here: bool = True) -> list[RunRequest]:
    """In the order of the points.

    Args:
        here: whether it is to be made here, so that what this machine lacks is told too.

    Raises:
        InputError: with every fault of every point, each once; lacks of the machine are told along with them.
        MachineError: the input is well, but the machine lacks something.
    """
    resolved = [resolve(point.overrides, runs_root=runs_root) for point in points]
    faults = _Faults(points)
    for point, one in zip(points, resolved, strict=True):
        faults.add(point, one.faults)
    lines = _lacking(resolved, runs_root) if here else []
    known = {point: one.stand_in for point, one in zip(points, resolved, strict=True) if one.stand_in is not None}
    specs, steps = _checked(known, faults, here=here)
    if faults.by_text:
        raise InputError(*faults.lines(), *lines)
    if lines:
        raise MachineError(*lines)
    return list(_together(specs, steps))


class _Faults:
    """Most faults are those of many points; each is told once, with who has it."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.count = len(points)
        self.by_text: dict[str, list[Point]] = {}

    def add(self, point: Point, faults: Sequence[str]) -> None:
        for fault in faults:
            points = self.by_text.setdefault(fault, [])
            if point not in points:
                points.append(point)

    def lines(self) -> Iterator[str]:
        for fault, points in self.by_text.items():
            if len(points) == self.count:
                yield fault
                continue
            more = f" and {len(points) - 1} more" if len(points) > 1 else ""
            yield f"{points[0].label}{more}: {fault}"


def _lacking(resolved: Sequence[Resolved], runs_root: Path) -> list[str]:
    """Asked once for what differs between points: looking takes time."""
    keys = ("metrics_port", "workers", "tcp", "shaper", "runtime", "accelerator")
    different = {
        (*(one.settings.get(key) for key in keys), one.stand_in and one.stand_in.program): one for one in resolved
    }
    found = [line for one in different.values() for line in preflight.lacking(machine_checks(one, runs_root))]
    return list(dict.fromkeys(found))


def _checked(
    specs: Mapping[Point, RunSpec], faults: _Faults, *, here: bool
) -> tuple[dict[Point, RunSpec], dict[Point, int | None]]:
    """Return specs with the hashes of data and of models to begin with, by which runs are known again, and steps."""
    trained = {spec.hash: spec for spec in specs.values() if spec.program == "training"}
    answers = dict(zip(trained, check_all(list(trained.values())) if trained else [], strict=True))
    found: dict[Point, RunSpec] = {}
    steps: dict[Point, int | None] = {}
    for point, spec in specs.items():
        answer = answers.get(spec.hash) if spec.program == "training" else None
        if answer is None:
            found[point] = spec
        elif answer["faults"]:
            faults.add(point, [str(fault) for fault in answer["faults"]])
        else:
            faults.add(point, list(memory_faults(spec, answer)) if here else ())
            hashes: dict[str, Any] = {key: answer.get(key) for key in ("data_hash", "data_licence", "start_hash")}
            found[point] = dataclasses.replace(spec, **hashes)
            steps[point] = _steps(spec, answer.get("epoch_steps"))
    return found, steps


def _steps(spec: RunSpec, epoch_steps: int | None) -> int | None:
    if spec.epochs is None or epoch_steps is None:
        return spec.steps
    return math.ceil(spec.epochs * epoch_steps)


def _together(specs: Mapping[Point, RunSpec], steps: Mapping[Point, int | None]) -> Iterator[RunRequest]:
    """Points that ask for the same are one run, which keeps its model where any of them wants that."""
    by_hash: dict[str, list[Point]] = {}
    for point, spec in specs.items():
        by_hash.setdefault(spec.hash, []).append(point)
    for points in by_hash.values():
        keeps = (point for point in points if specs[point].keeps_model)
        yield RunRequest(specs[next(keeps, points[0])], tuple(points), steps.get(points[0]))
