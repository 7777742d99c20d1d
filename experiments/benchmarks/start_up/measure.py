"""How long a training takes from the command to its first step, what it costs and how much memory it then holds.

Workers forked from one process that has imported torch, against an interpreter for each; everything else alike. Both on
dtfm-regional4 with `digits`, whose steps themselves do not count here.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources, whole_run
from experiments.common.benchmark import Point
from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.machine.cleanup import remove_leftovers
from testbed.orchestrator.machine.signals import Stop
from testbed.orchestrator.observation.exporter import bind
from testbed.orchestrator.run.__main__ import Run
from testbed.orchestrator.run.orchestration import RunOrchestration
from testbed.orchestrator.run.run_command import checked_spec
from testbed.orchestrator.terminal.display import Display

WORKERS = (4, 16, 64)
REPEATS = 3
_SECONDS = {
    ("shared", 4): 20,
    ("shared", 16): 25,
    ("shared", 64): 50,
    ("interpreters", 4): 25,
    ("interpreters", 16): 50,
    ("interpreters", 64): 220,
}
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def points(*, quick: bool) -> list[Point]:
    """64 interpreters take minutes: they are measured once."""
    if quick:
        return [Point({"start": start, "workers": 4, "repeat": 0}, _SECONDS[start, 4]) for start in ("shared",)]
    return [
        Point({"start": start, "workers": workers, "repeat": repeat}, seconds)
        for repeat in range(REPEATS)
        for (start, workers), seconds in _SECONDS.items()
        if repeat == 0 or (start, workers) != ("interpreters", 64)
    ]


class Noted(Run):
    """A run that notes when each stage began, and what its processes hold at its first step."""

    def __init__(self, run: RunDir, spec: RunSpec, display: Display, began_s: float) -> None:
        with bind(0) as metrics:
            super().__init__(run, spec, display, metrics, Stop(), shared=True)
        self.began_s = began_s
        self.stages_s: dict[str, float] = {}
        self.held: dict[str, Any] = {}

    def stage(self, what: str, text: str) -> None:
        self.stages_s[what] = time.monotonic() - self.began_s
        if what == "go":
            self.held = _held_by_all()
        super().stage(what, text)

    @property
    def first_step_s(self) -> float:
        assert self.clock.t0_s is not None
        return self.clock.t0_s - self.began_s


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_whole_runs()


def measure(start: str, workers: int, repeat: int) -> dict[str, Any]:
    began_s = time.monotonic() - _age_s()
    overrides = ["topo=dtfm-regional4", f"workers={workers}", "steps=1", "metrics_port=0"]
    with tempfile.TemporaryDirectory() as folder:
        spec = checked_spec(resolve(overrides), Path(folder))
        run = whole_run.directory(Path(folder), spec, "start_up")
        run.runtime.mkdir(mode=0o700)
        try:
            with Display(spec, quiet=True) as display:
                noted = Noted(run, spec, display, began_s)
                RunOrchestration(spec, noted, shared=True, shared_start=start == "shared").perform()
                noted.recorder.close()
        finally:
            left = remove_leftovers(run.run_id)
    return {
        "containers_s": noted.stages_s["workers"],
        "warm_s": noted.stages_s["busy"],
        "first_step_s": noted.first_step_s,
        **noted.held,
        "left": len(left),
    }


def _age_s() -> float:
    """Since this process was started: its interpreter's start and its imports count, as the command's do."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) * _TICK_S


def _held_by_all() -> dict[str, Any]:
    """Of every process of this pid namespace, which is the run's: processor seconds so far and memory.

    A page that several share is counted in parts (PSS), so that the sum is what they take of the machine.
    """
    cpu_s, memory_bytes, processes = 0.0, 0, 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):  # it has just ended
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            rollup = Path(f"/proc/{entry}/smaps_rollup").read_text().splitlines()
            cpu_s += sum(map(int, fields[11:15])) * _TICK_S  # its own, and its children's that ended
            memory_bytes += sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))
            processes += 1
    return {"cpu_s": cpu_s, "pss_bytes": memory_bytes, "processes": processes}
