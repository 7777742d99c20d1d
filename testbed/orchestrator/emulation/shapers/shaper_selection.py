"""Which shaper a run gets: what was asked, or the best that this kernel has; never silently another one."""

from __future__ import annotations

from testbed.core.errors import MachineError
from testbed.orchestrator.machine import checks


def choose(name: str, features: frozenset[str] | None = None) -> tuple[str, str]:
    """The shaper for `name` ("auto", "netem" or "nfqueue") and why.

    Args:
        features: of `checks.kernel_features`, which tries them in a throw-away namespace if not given.

    Raises:
        MachineError: it does not work here, or cannot be tried for want of root; says what to do.
    """
    known = checks.kernel_features() if features is None else features
    if known is None:
        raise MachineError("which delay shaper this kernel has can only be tried by root: run with sudo")
    check = checks.delay_shaper(known, name)
    if not check.ok:
        raise MachineError(f"shaper={name}: {check.found}: {check.cure}")
    if name != "auto":
        return name, "asked"
    best = checks.usable_shapers(known)[0]
    return best, "this kernel has it" if best == "netem" else "this kernel has no sch_netem"
