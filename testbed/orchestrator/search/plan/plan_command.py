"""`longhaul plan`: how a model would best be divided over a network. Nothing is emulated; links are as asked for, or as
a run has probed them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.core.errors import EXIT_COMPLETED, InputError
from testbed.core.files import read_object
from testbed.core.parallelism.comparison import Comparison, compare
from testbed.core.parallelism.links import asked_links, links_from_json
from testbed.core.parallelism.model import ModelProfile
from testbed.core.parallelism.plan import SEARCHED
from testbed.core.parallelism.problem import RING, LinkMatrix, Problem
from testbed.core.parallelism.search import Options
from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.core.units import parse_size_bytes
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.run.questions.plugins import ask_worker
from testbed.orchestrator.search.plan.table import plan_table
from testbed.orchestrator.terminal.status_line import Following
from testbed.orchestrator.terminal.terminal import say, show, tell

TIME_LIMIT_S = 300.0
PROBE = "link_probe"


@dataclass(frozen=True, kw_only=True)
class PlanSearchRequest:
    """What is looked for, beside the training itself.

    Raises:
        InputError: a value cannot be; all of them, one a line.
    """

    memory: str | None = None
    """Of each device, as text with a unit; None: without limit."""
    schedules: tuple[str, ...] = SEARCHED
    all_reduce: str = RING
    top: int = 10
    """Plans to print."""

    def __post_init__(self) -> None:
        try:
            self.options()
            self.memory_bytes(1)
        except ValueError as error:
            raise InputError(*str(error).splitlines()) from error
        if self.top < 1:
            raise InputError(f"--top {self.top}: must be at least 1")

    def options(self) -> Options:
        return Options(schedules=self.schedules)

    def memory_bytes(self, ranks: int) -> tuple[int, ...] | None:
        return None if self.memory is None else (parse_size_bytes(self.memory),) * ranks


def plan(
    overrides: Sequence[str],
    runs_root: Path,
    asked: PlanSearchRequest,
    *,
    run_id: str | None = None,
    as_json: bool = False,
) -> int:
    """Print the plans and return the exit status.

    Args:
        run_id: of a run with a plan that was searched; its links as probed, and its spec where there are no overrides.

    Raises:
        InputError: with every fault at once.
    """
    record = None if run_id is None else _record(runs_root, run_id)
    if record is not None and not overrides:
        spec, links, source = record.spec, record.links, f"as probed in {run_id}"
    else:
        spec = resolve(overrides, emulated=False, runs_root=runs_root).spec
        links, source = asked_links(spec.topology), "as asked for: latency and rate alone"
        if record is not None:
            links, source = _of_same(record.links, links, str(run_id)), f"as probed in {run_id}"
    say(f"measuring the pieces of workload={spec.workload.name} on a core of this machine")
    answer = ask_worker("pieces", {"spec": spec.to_json()}, "profile of pieces", TIME_LIMIT_S)
    problem = _problem(spec, ModelProfile.from_json(answer["model"]), links, asked)
    with Following("candidates", None, sys.stderr) as following:
        found = compare(problem, asked.options(), following.at)
    if as_json:
        tell(json.dumps({"links_are": source, **found.to_json()}, indent=2, allow_nan=False))
    else:
        show(plan_table(found, heading=_heading(spec, found, source), top=asked.top))
    return EXIT_COMPLETED


def _problem(spec: RunSpec, model: ModelProfile, links: LinkMatrix, asked: PlanSearchRequest) -> Problem:
    try:
        return Problem(
            layers=model.on(links),
            links=links,
            global_batch=spec.batch_size * spec.workers,
            memory_bytes=asked.memory_bytes(spec.workers),
            optimizer_states=model.optimizer_states,
            all_reduce=asked.all_reduce,
        )
    except ValueError as error:
        raise InputError(*str(error).splitlines()) from error


def _heading(spec: RunSpec, found: Comparison, source: str) -> str:
    batch = f"{found.problem.global_batch} samples a step"
    return f"{spec.workload.name} on {spec.topo}, {spec.workers} workers, {batch}; links {source}"


@dataclass(frozen=True)
class _Record:
    spec: RunSpec
    links: LinkMatrix


def _record(runs_root: Path, run_id: str) -> _Record:
    """
    Raises:
        InputError: there is no such run, or it has probed nothing.
    """
    run = RunDir(runs_root / run_id)
    try:
        if not RUN_ID.fullmatch(run_id):
            raise ValueError("not the id of a run")
        spec = RunSpec.from_json(read_object(run.spec))
        probes = [event for event in run.read_events() if event.get("event") == PROBE]
        if not probes:
            raise ValueError(f"it has no event {PROBE}; runs of strategy=hybrid strategy.plan=auto have one")
        return _Record(spec, links_from_json(probes[-1]))
    except (OSError, ValueError) as error:
        raise InputError(f"--run {run_id}: {error}") from error


def _of_same(probed: LinkMatrix, asked: LinkMatrix, run_id: str) -> LinkMatrix:
    """
    Raises:
        InputError: the run's ranks are in other regions.
    """
    if probed.regions == asked.regions:
        return probed
    raise InputError(
        f"--run {run_id}: its ranks are in regions {', '.join(probed.regions)}, those asked for in"
        f" {', '.join(asked.regions)}; give the same topo and workers"
    )
