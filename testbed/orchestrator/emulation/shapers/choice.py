"""Which shaper a run gets: what was asked, or the best that this kernel has; never silently another one."""

from __future__ import annotations

from testbed.core.errors import MachineError
from testbed.orchestrator import machine_checks

_LACKS = {
    "netem": "this kernel has no sch_netem: modprobe sch_netem (Debian's and Ubuntu's kernels have it)",
    "nfqueue": (
        "xt_NFQUEUE does not work here: modprobe xt_NFQUEUE nfnetlink_queue, apt-get install iptables, and"
        " NetfilterQueue for Python (make setup)"
    ),
}


def usable(features: frozenset[str] | None = None) -> frozenset[str]:
    """Names of the shapers that work here, tried in a throw-away namespace.

    Raises:
        MachineError: it cannot be tried, for want of root.
    """
    found = machine_checks.kernel_features() if features is None else features
    if found is None:
        raise MachineError("which delay shaper the kernel has can only be tried by root: run with sudo")
    has_binding = machine_checks.has_module("netfilterqueue")
    return frozenset(name for name in _LACKS if name in found and (name != "nfqueue" or has_binding))


def choose(name: str, features: frozenset[str] | None = None) -> tuple[str, str]:
    """The shaper for `name` ("auto", "netem" or "nfqueue") and why.

    Args:
        features: of `machine_checks.kernel_features`, where they are known already.

    Raises:
        MachineError: it does not work here; says what to do.
    """
    there = usable(features)
    if name == "auto":
        if not there:
            raise MachineError("shaper=auto: nothing here can delay packets", *_LACKS.values())
        return ("netem", "the kernel has it") if "netem" in there else ("nfqueue", "this kernel has no sch_netem")
    if name not in there:
        other = f"; or shaper={min(there)}" if there else ""
        raise MachineError(f"shaper={name}: {_LACKS[name]}{other}")
    return name, "asked"
