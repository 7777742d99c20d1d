"""A container's processor time, throttling and memory, from cgroup v1 or v2."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Usage:
    """None where the machine's cgroups do not say."""

    cpu_s: float | None
    throttled_s: float | None
    memory_bytes: int | None


def _number(path: Path, key: str | None = None) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        text = path.read_text()
        if key is None:
            return int(text)
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    return None


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


def usage(name: str) -> Usage:
    """Of the cgroup `name`, which lies at the root of each hierarchy."""
    if (ROOT / "cgroup.controllers").exists():
        group = ROOT / name
        return Usage(
            _scaled(_number(group / "cpu.stat", "usage_usec"), 1e-6),
            _scaled(_number(group / "cpu.stat", "throttled_usec"), 1e-6),
            _number(group / "memory.current"),
        )
    return Usage(
        _scaled(_number(ROOT / "cpuacct" / name / "cpuacct.usage"), 1e-9),
        _scaled(_number(ROOT / "cpu" / name / "cpu.stat", "throttled_time"), 1e-9),
        _number(ROOT / "memory" / name / "memory.usage_in_bytes"),
    )
