"""Encoding and decoding of every compressor against a copy of the same bytes, on one core and on two.

Two allocators: `kept` keeps large blocks, so that a temporary costs no page faults; `default` is the C library's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from testbed.core.errors import RunError
from testbed.orchestrator.machine.clone import CLONE, KEEPS_BLOCKS, environment

ALLOCATORS = {"kept": KEEPS_BLOCKS, "default": {}}
PROCESS = "experiments.benchmarks.codecs.codec_process"
_SECONDS = {"kept": 25, "default": 12}
_LIMIT_S = 200


def points(*, quick: bool) -> list[Point]:
    names = ("int8", "topk") if quick else sources.COMPRESSORS
    chosen = ("kept",) if quick else tuple(ALLOCATORS)
    return [
        Point({"compressor": name, "allocator": allocator, "repeat": 0}, _SECONDS[allocator])
        for allocator in chosen
        for name in names
    ]


def depends_on(compressor: str, allocator: str, repeat: int) -> Iterator[Path]:
    del allocator, repeat
    yield from sources.of_compressor(compressor)
    yield from (sources.file(f"testbed.worker.laws.{name}") for name in ("throughput", "cases.lockstep"))
    yield sources.file(PROCESS)


def measure(compressor: str, allocator: str, repeat: int) -> dict[str, Any]:
    del repeat
    done = subprocess.run(
        [sys.executable, "-m", PROCESS, compressor, allocator],
        capture_output=True,
        text=True,
        cwd=CLONE,
        env={**os.environ, **environment(), **ALLOCATORS[allocator]},
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RunError(f"codecs {compressor}: {done.stderr.strip()[-1000:]}")
    return {"allocator": allocator, "rows": json.loads(done.stdout)}
