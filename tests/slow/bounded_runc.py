#!/usr/bin/python3
"""runc as a runtime of Docker's, for a machine whose root lacks a capability: privileged containers want all there are.

The container gets those that root has; nothing else is changed.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

NAMES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP"),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF"),
    "CHECKPOINT_RESTORE",
)
"""In the order of their numbers (capability.h)."""


def lacking() -> set[str]:
    """Return the capabilities that no program of this machine can have."""
    found = re.search(r"^CapBnd:\s*(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return {f"CAP_{name}" for number, name in enumerate(NAMES) if not int(found[1], 16) >> number & 1}


def main(arguments: list[str]) -> None:
    if "create" in arguments and "--bundle" in arguments:
        file = Path(arguments[arguments.index("--bundle") + 1]) / "config.json"
        config = json.loads(file.read_text())
        sets = config["process"]["capabilities"]
        config["process"]["capabilities"] = {kind: [one for one in sets[kind] if one not in lacking()] for kind in sets}
        file.write_text(json.dumps(config))
    os.execvp("runc", ["runc", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
