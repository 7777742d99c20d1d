"""The run whose start is timed."""

from __future__ import annotations

from pathlib import Path

from experiments.benchmarks.start_up.measure import Noted
from experiments.common import whole_run
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.terminal.display import Display


def test_the_run_whose_start_is_timed_can_be_made(tmp_path: Path) -> None:
    spec = resolve(["topo=lan", "workers=2", "dilation=1"]).spec
    run = whole_run.directory(tmp_path, spec, "start_up")
    with Display(spec, quiet=True) as display:
        noted = Noted(run, spec, display, 0.0)
    noted.recorder.close()
    noted._exporter.close()
    assert noted.stages_s == {}
