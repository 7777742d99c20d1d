"""What a run needs that is root of a user namespace alone. None of the questions changes the machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

from testbed.orchestrator.machine_checks import PROBE_TIME_LIMIT_S, Check
from testbed.orchestrator.rights import Rights

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
