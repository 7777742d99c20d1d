"""What this machine has and lacks for a run, all at once, before anything is built."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from testbed.core.errors import MachineError
from testbed.core.spec.run_spec import DEFAULT_METRICS_PORT, PROCESSOR, RunSpec
from testbed.orchestrator.emulation.containers import driver, runc_escapes
from testbed.orchestrator.emulation.kernel import slowed_tcp
from testbed.orchestrator.emulation.kernel.tcp import CONGESTION_CONTROL, MAX_CUBIC_DILATION, MAX_WALL_BBR_RTT_S
from testbed.orchestrator.machine import checks
from testbed.orchestrator.machine.checks import PROBE_TIME_LIMIT_S, Check
from testbed.orchestrator.machine.clone import CLONE, RUNS_ROOT
from testbed.orchestrator.machine.rights import OF_ROOT, Rights

# What a run needs that is root of a user namespace alone. None of the questions changes the machine.

_FORBIDDEN = (
    ("kernel/unprivileged_userns_clone", "0", "as root: sysctl kernel.unprivileged_userns_clone=1"),
    ("user/max_user_namespaces", "0", "as root: sysctl user.max_user_namespaces=10000"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "as root: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a profile of AppArmor for unshare",
    ),
)
"""Below /proc/sys: what forbids user namespaces, and what allows them."""


def user_namespace(rights: Rights, settings: Path = Path("/proc/sys")) -> Check:
    """Tried; where it does not work, by which of the kernel's settings."""
    meaning = "in it a run without root makes its links and mounts"
    try:
        command = [*rights.unshare(), "true"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIME_LIMIT_S, check=False)
        ok, said = done.returncode == 0, done.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        ok, said = False, str(error)
    cures = [cure for name, forbids, cure in _FORBIDDEN if _setting(settings / name) == forbids]
    if not cures:
        cures = [
            "in a container: let its filter pass unshare and mount, and its /proc and /sys be whole; or run as root"
        ]
    return Check("user namespace", True, ok, "works" if ok else f"refused ({said})", meaning, "; ".join(cures))


def _setting(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def own_sys(features: frozenset[str] | None) -> Check:
    """Root of a user namespace may mount one only where the whole of the machine's is seen."""
    ok = features is not None and "sysfs" in features
    cure = "in a container: let its /sys be whole; or run as root"
    return Check("own /sys", True, ok, "works" if ok else "refused", "a run looks at its own network there", cure)


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
    rtt_s: float = 0.0,
    dilation: float = 1.0,
    is_capped: bool = False,
    shaper: str = "auto",
    program: str = "training",
    runtime: str | None = "runc",
    accelerator: str = PROCESSOR,
    runs_root: Path = RUNS_ROOT,
    rights: Rights = OF_ROOT,
) -> list[Check]:
    """Every question about this machine; those a run does not hang on are not `needed`.

    Args:
        metrics_port: None leaves the port out.
        rtt_s: Longest round trip of the network, in emulated seconds.
        dilation: As it is asked; one that is to be chosen is 1.
        is_capped: True if TCP flows have a cap of their own.
        program: what runs in the nodes, as of `RunSpec`.
        runtime: of the nodes, likewise; None asks for all of them, and needs the default one.
    """
    if not checks.operating_system().ok:  # the other questions are put to Linux alone
        return [checks.root(), checks.operating_system()]
    features = checks.kernel_features(rights)
    return [
        user_namespace(rights) if rights.rootless else checks.root(),
        checks.operating_system(),
        checks.mininet(),
        checks.binary("runc", "containers of the nodes", "runc", needed=runtime != "docker"),
        runc_escapes.check(needed=runtime != "docker"),
        *([] if runtime == "runc" else [checks.docker(needed=runtime == "docker")]),
        driver.check(accelerator, workers),
        *(checks.binary(*row) for row in _BINARIES),
        checks.binary("iptables", "it feeds the nfqueue shaper", "iptables", needed=_needs_iptables(features, shaper)),
        checks.namespaces(features),
        checks.delay_shaper(features, shaper),
        checks.congestion_control(CONGESTION_CONTROL[tcp], features),
        *tcp_of_slowed_runs(CONGESTION_CONTROL[tcp], rtt_s, dilation, is_capped),
        checks.clone_is_readable(CLONE),
        *([own_sys(features)] if rights.rootless else [checks.cgroups(), checks.overlay(features)]),
        checks.disk(runs_root),
        *([] if metrics_port is None else [checks.port(metrics_port)]),
        checks.memory(workers, program),
        checks.cores(),
        checks.real_time(),
        checks.pressure(),
        checks.binary("promtool", "make dashboard makes its archive with it", "prometheus", needed=False),
        checks.binary("prometheus", "make dashboard serves all runs with it", "prometheus", needed=False),
    ]


def tcp_of_slowed_runs(base: str, rtt_s: float, dilation: float, is_capped: bool) -> list[Check]:
    """Tell whether a congestion control's times stretch with a run, and whether it can cap flows (0059, 0066)."""
    if base not in slowed_tcp.BASES:
        return []
    if base == "bbr":
        needed, bears = rtt_s * dilation > MAX_WALL_BBR_RTT_S, f"round trips of {MAX_WALL_BBR_RTT_S:g} s of wall time"
        asked = f"this one has {rtt_s * dilation:.3g} s"
    else:
        needed, bears = dilation > MAX_CUBIC_DILATION, f"a dilation of {MAX_CUBIC_DILATION:g}"
        asked = f"this one has {dilation:g}"
    if is_capped:
        needed, bears, asked = True, "no topo.flow_cap", "this one has it"
    lack = slowed_tcp.lack(base)
    meaning = f"without it a slowed run bears {bears}" + (f", and {asked}" if needed else "")
    cure = "make setup on Linux 6.10 or newer, as root; or a smaller dilation; or tcp=reno"
    return [Check(f"slowed {base.upper()}", needed, lack is None, lack or "works", meaning, cure)]


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
            rtt_s=spec.outermost_topology.farthest_rtt_s,
            dilation=spec.dilation,
            is_capped=spec.topology.flow_cap_bit_s is not None,
            shaper=spec.shaper,
            program=spec.program,
            runtime=spec.runtime,
            accelerator=spec.accelerator,
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
