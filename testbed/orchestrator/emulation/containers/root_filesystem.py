"""The root file system of every container of a run: a read-only view of the host's, with what is secret taken out.

An overlay of two lower layers and no upper one, so nobody can write to it: at the bottom the host's `/` (its own file
system alone: what is mounted below it is not seen), on top a mask in memory that holds

* an opaque empty directory in place of each directory that a worker has no business in (home, /run, /var, ...);
* a whiteout in place of each file at the top, and copies of the few files of /etc that a program needs;
* a few files of its own (hosts, resolv.conf), and mount points for what is bound back.

It lives in the mount namespace of the run and ends with it.

Root of a user namespace may neither put an overlay over the host's `/`, since mounts below it are locked there, nor
mark opaque directories. `BoundRoot` is a root of the same content made the other way round: the mask itself, with what
is seen of the host bound into it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

from testbed.core.errors import MachineError

KEPT = frozenset({"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "proc", "sys", "dev"})
"""Top-level directories that are seen; all others are hidden, /etc but for copies."""
COPIED_FROM_ETC = (
    "alternatives",
    "fonts",
    "group",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "protocols",
    "services",
)
"""All that a program needs of /etc; the rest (keys, passwords, other programs' configuration) is not there."""
OWN_FILES = {
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/hostname": "node\n",
    "etc/resolv.conf": "",  # a worker has nobody to ask: a look-up must fail at once, not time out
}


class MaskedRoot:
    """`path` is the mounted root.

    Args:
        mount_points: paths of the host that must exist in it.
        hosts: more lines for /etc/hosts.
        directories: more mount points, which the host need not have.
    """

    def __init__(
        self, work: Path, mount_points: Iterable[Path], hosts: str = "", directories: Iterable[Path] = ()
    ) -> None:
        self.path = work / "root"
        self._mask = work / "mask"
        self.path.mkdir(parents=True)
        self._mask.mkdir()
        self._hosts = hosts
        self._hide()
        for point in mount_points:
            self._make(point)
        for directory in directories:
            (self._mask / directory.relative_to("/")).mkdir(parents=True, exist_ok=True)
        for name in ("tmp", "var/tmp"):
            (self._mask / name).mkdir(parents=True, exist_ok=True)
            (self._mask / name).chmod(0o1777)  # runc gives a tmpfs the mode of the directory below it
        self._put_together()

    def _put_together(self) -> None:
        # Debian's overlay takes no ':' or ',' in a layer's path; both are ours
        options = f"ro,lowerdir={self._mask}:/"
        done = subprocess.run(
            ["mount", "-t", "overlay", "overlay", "-o", options, str(self.path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise MachineError(f"overlay over the host's root: {done.stderr.strip()}; the kernel needs overlayfs")

    def _hide(self) -> None:
        for name in os.listdir("/"):
            if name in KEPT or os.path.islink(f"/{name}"):
                continue
            if os.path.isdir(f"/{name}"):
                self._opaque(self._mask / name)
            else:
                self._whiteout(self._mask / name)
        self._opaque(self._mask / "etc")
        for name in COPIED_FROM_ETC:
            source, copy = Path("/etc") / name, self._mask / "etc" / name
            if source.is_dir() and not source.is_symlink():
                shutil.copytree(source, copy, symlinks=True)
            elif os.path.lexists(source):
                shutil.copy2(source, copy, follow_symlinks=False)
        for name, text in OWN_FILES.items():
            path = self._mask / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + (self._hosts if name == "etc/hosts" else ""))
            path.chmod(0o644)

    def _opaque(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        os.setxattr(path, "trusted.overlay.opaque", b"y")

    def _whiteout(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))

    def _make(self, point: Path) -> None:
        """Empty parents in the mask: those that exist below are merged, those hidden stay opaque."""
        inside = self._mask / point.relative_to("/")
        if point.is_dir():
            inside.mkdir(parents=True, exist_ok=True)
        else:
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.touch()


class BoundRoot(MaskedRoot):
    """The same without an overlay: what is kept is bound into the mask, read-only with all that is mounted below it."""

    def _put_together(self) -> None:
        for name in sorted(KEPT):
            source, target = Path("/") / name, self._mask / name
            if source.is_symlink():
                target.symlink_to(os.readlink(source))
            elif source.is_dir():
                target.mkdir(exist_ok=True)
                if name not in _OF_CONTAINER:
                    bind_read_only(source, target)
        bind_read_only(self._mask, self.path)

    def _opaque(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def _whiteout(self, path: Path) -> None:
        """Nothing is there that would have to be hidden."""


_OF_CONTAINER = frozenset({"proc", "sys", "dev"})
"""Mounted anew by runc."""
_libc = ctypes.CDLL(None, use_errno=True)
_MOUNT_SETATTR = 442
"""The same number on every architecture."""
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_READ_ONLY, _NO_SETUID, _NO_DEVICES = 0x1, 0x2, 0x4


def bind_read_only(source: Path, target: Path) -> None:
    """Mount `source` at `target`, read-only, with all mounts below it, in the mount namespace of the caller.

    Flags are added only, since those that the host has set are locked.

    Raises:
        MachineError: The kernel does not mount it so.
    """
    done = subprocess.run(["mount", "--rbind", str(source), str(target)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MachineError(f"a node's root: {source} cannot be bound: {done.stderr.strip()}")
    flags = (ctypes.c_uint64 * 4)(_READ_ONLY | _NO_SETUID | _NO_DEVICES, 0, 0, 0)  # set, clear, propagation, user
    path = ctypes.c_char_p(bytes(target))
    if _libc.syscall(
        _MOUNT_SETATTR, _AT_FDCWD, path, ctypes.c_uint(_AT_RECURSIVE), ctypes.byref(flags), ctypes.sizeof(flags)
    ):
        raise MachineError(
            f"a node's root: {source} cannot be bound read-only: {os.strerror(ctypes.get_errno())};"
            " mount_setattr is Linux 5.12's"
        )
