"""Runs of Longhaul in Python: read, compared, drawn, and started from a script or a notebook.

Reading needs a folder of run directories and neither root, torch nor a clone; copy `runs/` to a laptop and
`pip install longhaul`. Starting runs needs a clone of Longhaul and its rights.

>>> import longhaul
>>> runs = longhaul.runs(RUNS, status="completed")
>>> runs[["strategy", "compressor", "seed", "metric_best"]].head(2)
    strategy compressor  seed  metric_best
0        ddp       topk     3     0.411111
1  local_sgd   powersgd     4     0.183333

Names carry base units: `time_s` is seconds of emulated time, `wan_bytes` bytes, `rate_target_bit_s` bits a second.
"""

from __future__ import annotations

from longhaul.comparing import compare, table
from longhaul.one_run import Run
from longhaul.plotting import plot
from longhaul.run_frame import runs
from longhaul.starting import run, sweep
from testbed import __version__
from testbed.core.errors import InputError, LonghaulError, MachineError, RunError

__all__ = [
    "InputError",
    "LonghaulError",
    "MachineError",
    "Run",
    "RunError",
    "__version__",
    "compare",
    "plot",
    "run",
    "runs",
    "sweep",
    "table",
]
