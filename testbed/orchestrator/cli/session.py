"""`longhaul up`, `exec`, `down`: a network and its nodes without training, for ping, iperf3, tcpdump or anything.

A session is a run like any other (workload=hand): its links are measured first, watched while it is up, and it ends
with a record and a verdict. It runs in the background and is found again by its run id.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NoReturn

from testbed.core.errors import InputError, MachineError, RunError
from testbed.core.files import read_object
from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.core.spec.run_spec import PROGRAMS, RunSpec
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.emulation.links.addresses import AddressPlan
from testbed.orchestrator.machine import checks, clone
from testbed.orchestrator.machine.cleanup import processes_of
from testbed.orchestrator.run.run_command import checked_spec
from testbed.orchestrator.run.supervisor import RUN_MODULE, STOP_TIMEOUT_S
from testbed.orchestrator.terminal.terminal import tell

HAND = "workload=hand"
_UP_TIMEOUT_S = 180.0
_DOWN_TIMEOUT_S = STOP_TIMEOUT_S + 60.0
"""What does not end by itself is killed on the way, and its record sealed."""
_POLL_S = 0.1
_CAPABILITIES = "net_admin,net_bind_service,net_raw,setgid,setuid,chown,dac_override,kill"
"""Of what `exec` starts: enough for ping, tcpdump, tc; nothing that reaches out of the node."""
_NAMESPACE_PIDS = re.compile(r"^NSpid:.*\t1$", re.MULTILINE)
"""In the status of a pid namespace's first process; what that process forks has its command line for a moment too."""


def up(overrides: Sequence[str], runs_root: Path, *, share: bool = False, trusted: Sequence[Path] = ()) -> None:
    """Bring a session up in the background and return when its nodes are there.

    Args:
        trusted: Files of `--trust`.

    Raises:
        InputError, MachineError: as `longhaul run`, before anything is built.
        RunError: it did not come up; says why.
    """
    spec = checked_spec(resolve([*overrides, HAND], runs_root=runs_root), runs_root, share=share)
    told, telling = os.pipe()
    with os.fdopen(told) as run_id:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "testbed", "run", *overrides, HAND, "--quiet"),
                *("--runs", str(runs_root.absolute()), f"--tell-run-id={telling}", *(["--share"] if share else [])),
                *(f"--trust={path}" for path in trusted),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=clone.environment(),
            pass_fds=[telling],
        )
        os.close(telling)
        run = _wait_until_up(process, runs_root, run_id)
    plan = AddressPlan(spec.topology)
    tell(f"{spec.topo} is up as {run.run_id}")
    for node in spec.topology.nodes:
        tell(f"  {node.name:<20} {plan.node_address(node.name)}")
    first = spec.topology.nodes[0].name
    tell(f"longhaul exec {first} -- CMD; a region's name is its router; longhaul down ends it")


def _directories(runs_root: Path) -> Iterator[Path]:
    return runs_root.iterdir() if runs_root.is_dir() else iter(())


def _wait_until_up(process: subprocess.Popen[str], runs_root: Path, run_id: IO[str]) -> RunDir:
    """
    Args:
        run_id: where the process tells it, once the run has one, or ends without.
    """
    deadline_s = time.monotonic() + _UP_TIMEOUT_S
    run: RunDir | None = None
    while process.poll() is None and time.monotonic() < deadline_s:
        if run is None and select.select([run_id], [], [], _POLL_S)[0] and (said := run_id.read()):
            run = RunDir(runs_root / said)
        if run is not None and any(e["event"] == "schedule" and e["what"] == "go" for e in run.read_events()):
            return run
        time.sleep(_POLL_S)
    if process.poll() is None:
        process.terminate()
    output, _ = process.communicate()
    raise RunError(f"it did not come up: {output.strip() or 'no word why'}")


def sessions(runs_root: Path) -> list[RunDir]:
    """Those that are up."""
    found = []
    for path in sorted(_directories(runs_root)):
        run = RunDir(path)
        if not run.summary.exists() and run.is_alive() and _is_by_hand(run):
            found.append(run)
    return found


def _is_by_hand(run: RunDir) -> bool:
    """By its spec, not by its name: a topology or a compressor may be called anything."""
    spec = run.read_json(run.spec) if RUN_ID.match(run.run_id) else None
    return spec is not None and PROGRAMS.get(spec["workload"]["target"]) == "hand"


def _session(run_id: str | None, runs_root: Path) -> RunDir:
    if not checks.is_root():
        raise MachineError(checks.root().line)
    found = sessions(runs_root)
    if run_id is not None:
        found = [run for run in found if run.run_id == run_id]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"{run_id or 'no session'}: not up in {runs_root}; `longhaul up topo=...` brings one up")
    raise InputError(f"{len(found)} sessions are up; say which with --run: {', '.join(run.run_id for run in found)}")


def _environment_of(pid: int) -> dict[str, str]:
    words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(word.partition("=")[::2] for word in words if "=" in word)


def _main_process(run: RunDir) -> int:
    """Return the pid of the first process of the run's own pid namespace."""
    for pid in processes_of(run.run_id):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[1:3] == [b"-m", RUN_MODULE.encode()] and _NAMESPACE_PIDS.search(
            Path(f"/proc/{pid}/status").read_text()
        ):
            return pid
    raise RunError(f"{run.run_id}: its first process is gone")


def _supervisor(run: RunDir) -> int:
    """Return the pid of the process outside of the namespaces, which waits for the run's end and seals its record."""
    return _parent(_parent(_main_process(run)))


def _parent(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nPPid:")[2].split()[0])


def execute(node: str, command: Sequence[str], runs_root: Path, run_id: str | None = None) -> NoReturn:
    """Become `command` in a node of a session, or at a region's router.

    In a node it is root of the node alone: its own processes, files, network; few capabilities.

    Raises:
        InputError: no such session or node, or no command.
        MachineError: not root, whose processes a session's are.
    """
    run = _session(run_id, runs_root)
    if not command:
        raise InputError(f"exec {node}: say what to run, as in longhaul exec {node} -- ping -c 3 OTHER_NODE")
    spec = _spec(run)
    is_router = node in spec.topology.regions
    if is_router:
        enter = ["nsenter", f"--net={_router_namespace(run, node)}", "--"]
    else:
        names = [found.name for found in spec.topology.nodes]
        if node not in names:
            known = ", ".join([*names, *spec.topology.regions])
            raise InputError(f"exec {node}: no such node in {run.run_id}; known: {known}")
        pid = _node_process(run, node)
        enter = [
            *("nsenter", f"--target={pid}", "--mount", "--net", "--pid", "--ipc", "--uts", "--wdns=/tmp", "--"),
            *("setpriv", "--bounding-set", "-all," + ",".join(f"+{word}" for word in _CAPABILITIES.split(","))),
            *("--inh-caps=-all", "--no-new-privs"),
        ]
    os.execvpe(enter[0], [*enter, *command], _environment(run, is_router=is_router))


def _environment(run: RunDir, *, is_router: bool) -> dict[str, str]:
    """With the run's id, by which what stays in the background is found when the session ends.

    Nothing of the caller's that a node need not know. LONGHAUL_NODE is its first process's alone.
    """
    return {
        "PATH": f"{sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": os.environ.get("HOME", "/") if is_router else "/tmp",
        **{name: os.environ[name] for name in ("TERM", "LANG", "LC_ALL") if name in os.environ},
        "LONGHAUL_RUN": run.run_id,
    }


def _spec(run: RunDir) -> RunSpec:
    return RunSpec.from_json(read_object(run.spec))


def _node_process(run: RunDir, node: str) -> int:
    for pid in processes_of(run.run_id):
        if _environment_of(pid).get("LONGHAUL_NODE") == node:
            return pid
    raise RunError(f"node {node}: its container is gone; a `crash` or `leave` event may have taken it")


def _router_namespace(run: RunDir, region: str) -> str:
    nodes = json.loads((run.runtime / "routers.json").read_text())
    return f"/proc/{_main_process(run)}/fd/{nodes[region]}"


def down(runs_root: Path, run_id: str | None = None) -> RunDir:
    """End a session; returns when its record is sealed.

    Raises:
        InputError: no such session.
        MachineError: not root.
        RunError: it did not end in time.
    """
    run = _session(run_id, runs_root)
    os.kill(_supervisor(run), signal.SIGTERM)
    deadline_s = time.monotonic() + _DOWN_TIMEOUT_S
    while not run.summary.exists() or run.is_alive():
        if time.monotonic() > deadline_s:
            raise RunError(f"{run.run_id}: not ended after {_DOWN_TIMEOUT_S:.0f} s; longhaul clean {run.run_id}")
        time.sleep(_POLL_S)
    return run
