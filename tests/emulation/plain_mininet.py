"""Mininet's own `mn`, with the topologies of scripts/mininet_topos.py."""

from __future__ import annotations

import re
import subprocess

from testbed.orchestrator.machine.clone import CLONE
from tests.emulation.support import IN_NAMESPACES

# After an exception `mn` kills processes by name and empties /tmp: it must see its own processes and files alone. The
# clone may lie below /tmp, so it is shown elsewhere.
_ENTER = """
mount -t tmpfs tmpfs /mnt && mkdir /mnt/clone && mount --bind "$1" /mnt/clone && mount -t tmpfs tmpfs /tmp &&
ip link set lo up && cd / && shift && exec mn --custom /mnt/clone/scripts/mininet_topos.py "$@"
"""


def mn(topo: str, *options: str, prompt: str = "") -> subprocess.CompletedProcess[str]:
    """Args:
    prompt: what is typed at its prompt, a command a line, where no `--test` is among the options.
    """
    return subprocess.run(
        [*IN_NAMESPACES, "sh", "-c", _ENTER, "sh", str(CLONE), "--topo", topo, *options],
        input=prompt,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def require_pinged(done: subprocess.CompletedProcess[str], pairs: int) -> None:
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert f"0% dropped ({pairs}/{pairs} received)" in said, said


def shortest_round_trip_s(done: subprocess.CompletedProcess[str]) -> float:
    """Of the ping that was typed."""
    said = done.stdout + done.stderr
    match = re.search(r"rtt min/avg/max/mdev = ([0-9.]+)/", said)
    assert match, said
    return float(match[1]) / 1e3
