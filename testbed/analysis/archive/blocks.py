"""A Prometheus server's data directory: its blocks, and promtool, which makes them of OpenMetrics text."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from testbed.core.errors import MachineError, RunError
from testbed.core.processes import end_with

BLOCK_DURATION = "54h"
"""promtool reads its input once for every block. The epoch begins a block of 2 h or 6 h, so that what was measured
before a run's first step would fall into another; of 54 h it lies in the middle."""
_BLOCK = re.compile(r"[0-9A-Z]{26}")


def blocks(data: Path) -> list[Path]:
    return sorted(path for path in data.glob("*") if _BLOCK.fullmatch(path.name))


def stored_samples(data: Path) -> int:
    """As many as the blocks say they hold; also after a server has merged some of them.

    Raises:
        ValueError, OSError: a block is damaged.
    """
    count = 0
    for block in blocks(data):
        meta = json.loads((block / "meta.json").read_bytes())
        count += int(meta["stats"]["numSamples"])
    return count


def create_blocks(text: Path, data: Path, samples: int) -> None:
    """Make blocks of `text` in the new directory `data`.

    Args:
        samples: how many it holds: promtool drops what it does not like without a word.

    Raises:
        MachineError: there is no promtool.
        RunError: it failed, or stored another number of samples.
    """
    data.mkdir()
    promtool = shutil.which("promtool")
    if promtool is None:
        raise MachineError("promtool: not found; it makes the archive of all runs: apt-get install prometheus")
    command = [promtool, "tsdb", "create-blocks-from", f"--max-block-duration={BLOCK_DURATION}"]
    made = subprocess.run(
        [*command, "openmetrics", str(text), str(data)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=functools.partial(end_with, os.getpid()),
    )
    if made.returncode != 0:
        said = [*made.stdout.splitlines(), *made.stderr.splitlines(), "no word why"]
        raise RunError(f"promtool made no blocks of {samples} samples: {(made.stderr.splitlines() or said)[-1]}")
    stored = stored_samples(data)
    if stored != samples:
        raise RunError(
            f"promtool stored {stored} of {samples} samples and said nothing of the other {samples - stored};"
            " the archive is as it was"
        )
