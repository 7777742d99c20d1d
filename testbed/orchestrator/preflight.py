"""What this machine has and lacks for a run, all at once, before anything is built."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from testbed.core.errors import MachineError
from testbed.core.spec import DEFAULT_METRICS_PORT, RunSpec
from testbed.orchestrator import machine_checks as machine
from testbed.orchestrator import rootless_checks as rootless
from testbed.orchestrator.clone import CLONE, RUNS_ROOT
from testbed.orchestrator.emulation.tcp import CONGESTION_CONTROL
from testbed.orchestrator.machine_checks import Check
from testbed.orchestrator.rights import OF_ROOT, Rights

_BINARIES = (
    ("ip", "it sets addresses and routes", "iproute2"),
    ("tc", "it sets the rates of links", "iproute2"),
    ("unshare", "a run lives in namespaces of its own", "util-linux"),
    ("mnexec", "Mininet's nodes start with it", "mininet"),
    ("sysctl", "it pins TCP's settings", "procps"),
)


def run_checks(
    *,
    metrics_port: int | None = DEFAULT_METRICS_PORT,
    workers: int = 4,
    tcp: str = "tuned",
    shaper: str = "auto",
    program: str = "training",
    runtime: str | None = "runc",
    runs_root: Path = RUNS_ROOT,
    rights: Rights = OF_ROOT,
) -> list[Check]:
    """Every question about this machine; those a run does not hang on are not `needed`.

    Args:
        metrics_port: None leaves the port out.
        program: what runs in the nodes, as of `RunSpec`.
        runtime: of the nodes, likewise; None asks for all of them, and needs the default one.
    """
    if not machine.operating_system().ok:  # the other questions are put to Linux alone
        return [machine.root(), machine.operating_system()]
    features = machine.kernel_features(rights)
    return [
        rootless.user_namespace(rights) if rights.rootless else machine.root(),
        machine.operating_system(),
        machine.mininet(),
        machine.binary("runc", "containers of the nodes", "runc", needed=runtime != "docker"),
        *([] if runtime == "runc" else [machine.docker(needed=runtime == "docker")]),
        *(machine.binary(*row) for row in _BINARIES),
        machine.binary("iptables", "it feeds the nfqueue shaper", "iptables", needed=_needs_iptables(features, shaper)),
        machine.namespaces(features),
        machine.delay_shaper(features, shaper),
        machine.congestion_control(CONGESTION_CONTROL[tcp], features),
        machine.clone_is_readable(CLONE),
        *([rootless.own_sys(features)] if rights.rootless else [machine.cgroups(), machine.overlay()]),
        machine.disk(runs_root),
        *([] if metrics_port is None else [machine.port(metrics_port)]),
        machine.memory(workers, program),
        machine.cores(),
        machine.real_time(),
        machine.pressure(),
        machine.binary("promtool", "make dashboard makes its archive with it", "prometheus", needed=False),
        machine.binary("prometheus", "make dashboard serves all runs with it", "prometheus", needed=False),
    ]


def _needs_iptables(features: frozenset[str] | None, shaper: str) -> bool:
    return shaper == "nfqueue" or (shaper == "auto" and "netem" not in (features or ()))


def lacking(checks: Sequence[Check]) -> tuple[str, ...]:
    """One line for each thing a run cannot be made without."""
    return tuple(check.line for check in checks if check.needed and not check.ok)


def raise_lacking(checks: Sequence[Check]) -> None:
    """Raises:
    MachineError: one line for each needed thing that is not there, with its cure.
    """
    lines = lacking(checks)
    if lines:
        raise MachineError(*lines)


def require(spec: RunSpec, runs_root: Path = RUNS_ROOT) -> None:
    """Raises:
    MachineError: one line for each thing that `spec` needs and this machine lacks, with its cure.
    """
    raise_lacking(
        run_checks(
            metrics_port=spec.metrics_port,
            workers=spec.workers,
            tcp=spec.tcp,
            shaper=spec.shaper,
            program=spec.program,
            runtime=spec.runtime,
            runs_root=runs_root,
        )
    )


def table(checks: Sequence[Check]) -> Table:
    """All checks, one a row."""
    view = Table(title="What this machine has and lacks", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("check", "", "found", "what for", "cure"):
        view.add_column(heading, overflow="fold")
    for check in checks:
        state = "ok" if check.ok else ("LACKS" if check.needed else "without")
        style = "" if check.ok else ("red" if check.needed else "yellow")
        view.add_row(check.name, state, check.found, check.meaning, "" if check.ok else check.cure, style=style)
    return view
