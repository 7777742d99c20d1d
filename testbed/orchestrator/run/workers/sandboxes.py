"""Makes what the containers of a run share: for runc a sandbox, for docker the holders of their networks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from testbed.core.errors import RunError
from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.programs import Program
from testbed.orchestrator.emulation.containers.docker_container import Holders
from testbed.orchestrator.emulation.containers.driver import Driver
from testbed.orchestrator.emulation.containers.sandbox import Sandbox
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.machine import clone
from testbed.orchestrator.machine.docker_client import remember_host
from testbed.orchestrator.machine.rights import Rights
from testbed.orchestrator.run_store.used import named_files

_MEMORY_SHARE = 0.85
_OF_NODE = ("dev", "etc", "proc", "run", "sys")


def sandbox_of(
    spec: RunSpec, program: Program, run: RunDir, network: Network, rights: Rights, driver: Driver
) -> Sandbox:
    """Return the sandbox of a run, whose place it mounts."""
    work = run.runtime / "box"
    work.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=711", "longhaul", str(work)], check=True)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    directory = program.working_directory()
    return Sandbox(
        run_id=run.run_id,
        clone=clone.CLONE,
        runs=run.path.parent.resolve(),
        socket=run.socket,
        work=work,
        memory_bytes=int(memory * _MEMORY_SHARE / spec.workers),
        limits=spec.memory_limit,
        containers=spec.workers,
        keeps_model=spec.keeps_model or spec.keeps_server,
        seen=(*([directory] if directory else []), *map(Path, spec.module_folders), *_named(spec)),
        working_directory=directory if program.is_users and spec.runtime != "docker" else None,
        rights=rights,
        driver=driver,
        nodes=tuple(node.name for node in spec.topology.nodes),
        hosts="".join(f"{network.plan.node_address(node)} {node}\n" for node in network.workers),
    )


def _named(spec: RunSpec) -> Iterator[Path]:
    """Yield what a script's arguments or a workload's parameters name, such as the table of a replay's model, apart
    from what each node has of its own, such as /etc/hosts."""
    for path in map(Path, named_files(spec, ("workload",))):
        if path.resolve().parts[1] not in _OF_NODE:
            yield path


def holders_of(spec: RunSpec, run: RunDir, host_proc: int | None) -> Holders:
    """Return what holds the networks of docker's containers.

    Args:
        host_proc: a descriptor of the host's /proc.

    Raises:
        RunError: there is none.
    """
    if host_proc is None:
        raise RunError("runtime=docker: the run was started without the host's /proc")
    run.docker.mkdir(mode=0o711)
    remember_host(run.runtime)
    nodes = [node.name for node in spec.topology.nodes]
    keeps_model = spec.keeps_model or spec.keeps_server
    return Holders(run.run_id, nodes, host_proc, keeps_model=keeps_model)
