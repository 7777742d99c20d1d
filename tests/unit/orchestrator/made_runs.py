"""A grid of small runs, their folders as runs leave them, and a place that makes such folders in place of runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from testbed.core.errors import LonghaulError
from testbed.core.record.run_directory import RunDir, new_run_id, write_json
from testbed.core.record.summary import empty_summary, summary_faults
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.executors.executor import Waiting
from testbed.orchestrator.machine import provenance
from testbed.orchestrator.search.sweep.axes import read_axes
from testbed.orchestrator.search.sweep.grid import Grid
from testbed.orchestrator.search.sweep.specs import RunRequest

FIXED = ("topo=lan", "workers=2", "steps=4")


def grid(*texts: str, **settings: Any) -> Grid:
    return Grid("made", tuple(read_axes([*texts, *FIXED])), **settings)


def asked_of(found: Grid) -> list[RunRequest]:
    """Without asking the worker's side, which takes seconds."""
    specs = [(compose(point.overrides), point) for point in found.points()]
    return [RunRequest(spec, (point,), spec.steps) for spec, point in specs]


def make_run(
    root: Path,
    spec: RunSpec,
    *,
    status: str = "completed",
    verdict: str = "valid",
    code_hash: str | None = None,
    now_s: float = 1.8e9,
    **values: Any,
) -> RunDir:
    """Of this code unless another `code_hash` is given; `values` go into the summary."""
    if spec.auto_dilation:
        spec = dataclasses.replace(spec, dilation=3.0)  # as chosen when a run begins
    run = RunDir.create(root, new_run_id(spec.topo, spec.strategy.name, spec.compressor.name, spec.hash, now_s))
    code = provenance.code_hash() if code_hash is None else code_hash
    write_json(run.spec, {**spec.to_json(), "code_hash": code})
    write_json(run.provenance, {"code_hash": code})
    verdict = verdict if status == "completed" else "invalid"
    words = {"run_id": run.run_id, "status": status, "verdict": verdict, "kind": "emulated", "seed": spec.seed}
    named = {"topo": spec.topo, "strategy": spec.strategy.name, "compressor": spec.compressor.name}
    summary = empty_summary() | words | named | {"workload": spec.workload.name, "workers": spec.workers} | values
    summary |= {} if verdict == "valid" else {"reasons": ["for a reason"]}
    assert not summary_faults(summary)
    write_json(run.summary, summary)
    return run


class Place:
    """`ends` says of the n-th run that is begun how it ends: what `make_run` takes, a text (no record), or an error."""

    is_here = True
    room = None

    def __init__(self, root: Path, ends: Callable[[int, RunSpec], dict[str, Any] | str | LonghaulError]) -> None:
        self.root = root
        self.ends = ends
        self.begun: list[RunSpec] = []

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def perform(self, waiting: Waiting) -> Iterator[tuple[RunSpec, str | None]]:
        while (spec := waiting.draw()) is not None:
            self.begun.append(spec)
            end = self.ends(len(self.begun), spec)
            if isinstance(end, LonghaulError):
                raise end
            if isinstance(end, str):
                yield spec, end
                continue
            make_run(self.root, spec, now_s=1.8e9 + len(self.begun), **end)
            yield spec, None
