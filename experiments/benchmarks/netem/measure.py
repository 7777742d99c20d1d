"""netem, which this machine's kernel may lack: each point boots user-mode Linux, which has it, and measures in there.

Ours with the netem shaper beside plain Mininet's `TCLink(bw=, delay=)` at the same rate and round trip.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.common import sources
from experiments.common.benchmark import Point
from experiments.common.harness import IN_NAMESPACES
from testbed.core.errors import RunError
from testbed.core.record.run_directory import RUNTIME_ROOT
from testbed.orchestrator.machine.clone import CLONE

RATES_BIT_S = (10e6, 100e6, 500e6)
"""The last is what one emulated core still carries."""
RTTS_S = (0.010, 0.067, 0.150)
SYSTEMS = ("longhaul", "mininet")
GUEST = "experiments.benchmarks.netem.guest"
_BOOT = CLONE / "tests" / "netem" / "boot.sh"
_LIMIT_S = 60
_SAID_CHARACTERS = 1500


def points(*, quick: bool) -> list[Point]:
    if quick:
        return [Point({"system": "longhaul", "rate_bit_s": 100e6, "rtt_s": 0.067}, 20)]
    return [
        Point({"system": system, "rate_bit_s": rate, "rtt_s": rtt}, 18)
        for rate in RATES_BIT_S
        for rtt in RTTS_S
        for system in SYSTEMS
    ]


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_network(
        GUEST, "experiments.benchmarks.netem.offered_load", "experiments.benchmarks.mininet_tclink.measure"
    )


def measure(**asked: Any) -> dict[str, Any]:
    return in_guest(GUEST, asked, _LIMIT_S)


def in_guest(module: str, asked: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
    """Return what `measure` of `module` returns in there.

    It is called in a mount namespace of its own: what is mounted, and made read-only, goes with it.

    Raises:
        RunError: There is no user-mode Linux, or the point failed; with what it said.
    """
    if not shutil.which("linux.uml"):
        raise RunError("linux.uml is not installed (Debian's user-mode-linux): make test-netem installs it")
    place, out = RUNTIME_ROOT / ".netem", RUNTIME_ROOT / ".netem-out"
    for folder in (place, out):
        folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(out)], check=True)
    point = [sys.executable, "-B", "-m", "experiments.common.point", module, json.dumps(asked)]
    command = ["bash", "-c", '"$@" >"$LONGHAUL_NETEM_OUT/result"', "point", *IN_NAMESPACES, *point]
    done = subprocess.run(
        ["bash", str(_BOOT), str(place), str(CLONE), f"{limit_s:.0f}", str(out), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RunError(f"in user-mode Linux, status {done.returncode}: {done.stdout.strip()[-_SAID_CHARACTERS:]}")
    found: dict[str, Any] = json.loads((out / "result").read_text().strip().splitlines()[-1])
    return found
