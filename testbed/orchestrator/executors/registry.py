"""Executors by name. The modules for Ray and Slurm are imported here alone, and only on request."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from testbed.core.errors import InputError
from testbed.orchestrator.config.grammar.overrides import unknown
from testbed.orchestrator.executors.executor import LOCAL, NAMES, RAY, Executor, Local
from testbed.orchestrator.executors.options import check


def executor(name: str, runs_root: Path, *, share: bool, options: Mapping[str, object] | None = None) -> Executor:
    """
    Args:
        options: of this executor, as of a sweep's file or the command line.

    Raises:
        InputError: there is no such executor, or it has no such options; with every fault.
    """
    if name not in NAMES:
        raise InputError(unknown(f"executor={name}", name, NAMES, "executor"))
    given = dict(options or {})
    if name == LOCAL:
        check(name, given)
        return Local(runs_root, share=share)
    # what these need is not everybody's: loaded where it is asked for
    from testbed.orchestrator.executors.remote_executor import RemoteExecutor

    if name == RAY:
        from testbed.orchestrator.executors.ray_executor import RayNodes

        return RemoteExecutor(RayNodes(given), runs_root, share=share)
    from testbed.orchestrator.executors.slurm_executor import SlurmJobs

    return RemoteExecutor(SlurmJobs(given, runs_root), runs_root, share=share)
