"""Mininet nodes of ours: routers that forward, and worker nodes whose processes run in a container."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from mininet.node import Node

from testbed.core.errors import RunError
from testbed.orchestrator.emulation.tcp import OPTIONAL_SYSCTLS

_COMMAND_TIMEOUT_S = 30.0


class Router(Node):  # type: ignore[misc]
    """A namespace that forwards: a region's router, or the middle of a WAN link."""


class WorkerNode(Node):  # type: ignore[misc]
    """A namespace for one worker. Its container joins it (`emulation.container`)."""


def run_in(node: Node, command: Sequence[str], stdin: str | None = None) -> str:
    """Run a command in the node's network namespace and return what it printed.

    Raises:
        RunError: with the command, the node and what it said, if it failed.
    """
    done = subprocess.run(
        ["mnexec", "-a", str(node.pid), *command],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_COMMAND_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RunError(f"node {node.name}: {' '.join(command)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def set_sysctls(node: Node, values: Mapping[str, str]) -> dict[str, str]:
    """Set and read back; return what is in force.

    Raises:
        RunError: the kernel keeps another value.
    """
    run_in(node, ["sysctl", "-q", "-e", "-w", *(f"{key}={value}" for key, value in values.items())])
    shown = run_in(node, ["sysctl", "-e", *values])
    found = {key.strip(): " ".join(value.split()) for key, value in (line.split("=", 1) for line in shown.splitlines())}
    for key, asked in values.items():
        if key not in found and key in OPTIONAL_SYSCTLS:
            continue
        if found.get(key) != asked:
            raise RunError(f"node {node.name}: asked {key}={asked}, kernel keeps {found.get(key, 'nothing')}")
    return found
