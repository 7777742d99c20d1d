"""Mounts of a container, in the words of an OCI configuration."""

from __future__ import annotations

from typing import Any

SHM_BYTES = 1 << 30
TMP_BYTES = 1 << 29
HARDENED = ("nosuid", "nodev", "noexec")


def mount(destination: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    """Return one mount."""
    return {"destination": destination, "type": kind, "source": source, "options": list(options)}


def bind(destination: str, source: str, *options: str) -> dict[str, Any]:
    """Return a mount of a file or folder of the host, without its devices and set-user-id bits."""
    return mount(destination, "none", source, "bind", "nosuid", "nodev", *options)


def own_mounts() -> list[dict[str, Any]]:
    """Return the mounts that each node has of its own."""
    return [
        mount("/proc", "proc", "proc", *HARDENED),
        mount("/dev", "tmpfs", "tmpfs", "nosuid", "noexec", "mode=755", "size=65536k"),
        mount("/dev/shm", "tmpfs", "shm", *HARDENED, "mode=1777", f"size={SHM_BYTES}"),
        mount("/sys", "sysfs", "sysfs", *HARDENED, "ro"),
        mount("/tmp", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=1777", f"size={TMP_BYTES}"),
    ]
