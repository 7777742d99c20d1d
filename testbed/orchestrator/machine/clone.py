"""Where this code lies, and the environment in which a subprocess finds it."""

from __future__ import annotations

import os
from pathlib import Path

import testbed

CLONE = Path(testbed.__file__).resolve().parents[1]
CONF_DIR = CLONE / "experiments" / "conf"
RUNS_ROOT = CLONE / "runs"
KEEPS_BLOCKS = {
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "MALLOC_TRIM_THRESHOLD_": str(2**33),
    "MALLOC_TOP_PAD_": str(2**28),
}
"""For the environment of a process that is timed: the C library keeps large blocks, so that none costs page faults."""


def environment() -> dict[str, str]:
    """Return this process's, with the clone on the module path, each folder once; the clone need not be installed."""
    named = [os.path.abspath(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys([str(CLONE), *named]))}
