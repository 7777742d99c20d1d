"""Errands that make a run's folder in place of a run, and a sweep of such as a process that can be killed."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.executors import ray_executor, slurm_executor
from testbed.orchestrator.executors.run_archive import pack
from testbed.orchestrator.search.sweep import specs
from tests.unit.orchestrator.made_runs import make_run

AXES = ("compressor=none,topk", "topo=lan,wan1g", "seed=range(6)", "workers=2", "steps=4", "metrics_port=0")
RUNS = 24
TAKES_S = 0.3
HOLD = "hold"
"""A file of the folder MADE_UP: while it is there no run that was begun comes to its end."""


def run_job(request: Mapping[str, Any]) -> dict[str, Any]:
    """As of `job.run_job`. Files of the folder MADE_UP say which runs were begun and which came to their end."""
    spec, folder = RunSpec.from_json(request["spec"]), Path(os.environ["MADE_UP"])
    with tempfile.TemporaryDirectory() as scratch:
        (folder / f"begun-{spec.hash}-{os.getpid()}-{time.time_ns()}").touch()
        time.sleep(TAKES_S)
        while (folder / HOLD).exists():
            time.sleep(0.02)
        run = make_run(Path(scratch), spec, code_hash=request["code_hash"], now_s=time.time())
        (run.path / "logs" / "worker.log").write_text("said\n" * 1000)
        reply = {"host": "made-up", "archive": pack(run), "faults": [], "lacks": [], "ended": None}
    (folder / f"ended-{spec.hash}-{os.getpid()}-{time.time_ns()}").touch()
    return reply


def sweep(*words: str) -> int:
    """`longhaul sweep` with such jobs; the plug-ins are not looked at, which takes seconds."""
    for module in (ray_executor.RayNodes, slurm_executor.SlurmJobs):
        *others, _ = module.__init__.__defaults__ or (None,)
        module.__init__.__defaults__ = (*others, run_job)
    specs.check_all = lambda asked: [{"faults": [], "computes": True} for _ in asked]
    return main(["sweep", *words, *AXES])


if __name__ == "__main__":
    from tests.distributed import fake_jobs  # by its name, as other processes know it

    sys.exit(fake_jobs.sweep(*sys.argv[1:]))
