"""Disk of one node for a user's script: a folder to write to, and the script's own folder with changes kept apart.

A tmpfs of limited size holds both, so that the kernel itself says "No space left on device". The script's folder is
the lower layer of an overlay: it is never changed, and each node has changes of its own, as machines far apart have
disks of their own. In the lower layer the files of the folder's owner are shown as the workers' own (an id-mapped
mount), so that a script overwrites what its owner could. What is written is copied into the run's directory at the end.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from testbed.core.errors import RunError

DISK_BYTES = 1 << 30
"""Size of one node's disk. What is written counts as the node's memory, as for /tmp."""
MAX_FILES = 100_000
OUT_IN_NODE = "/run/longhaul/out"
CHANGES = "working_directory"
"""Folder of a node's kept output that holds what the script changed in its working directory."""
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
"""The same numbers on every architecture."""
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_CLONE_TREE, _CLOSE_ON_EXEC, _FROM_EMPTY_PATH = 0x1, 0o2000000, 0x4
_READ_ONLY, _ID_MAPPED = 0x1, 0x100000
_LAST_ID = 2**32 - 2
_REDIRECT = "trusted.overlay.redirect"
"""Attribute of a folder in the upper layer that the script has moved there."""
_COPIED_BYTES = 1 << 24
_PATIENCE_S = 5.0
_libc = ctypes.CDLL(None, use_errno=True)


class NodeDisk:
    """Disk of `node`, mounted below `place` in the mount namespace of the run.

    Args:
        directory: Working directory of the script.
        user: (uid, gid) of workers.
        rootless: True in a user namespace of the run's own, where workers are the caller.

    Raises:
        RunError: The kernel refuses the overlay.
    """

    def __init__(self, node: str, place: Path, directory: Path, user: tuple[int, int], *, rootless: bool) -> None:
        self.node = node
        self._disk = place / f"{node}.disk"
        self.out, self._changes = self._disk / "out", self._disk / "changes"
        self.working_directory = self._disk / "working_directory"
        """The overlay."""
        self.notes: list[str] = []
        """Limits of the script on this kernel, each with its reason."""
        self._disk.mkdir()
        _mount("tmpfs", "disk", self._disk, f"nosuid,nodev,mode=755,size={DISK_BYTES},nr_inodes={MAX_FILES}")
        for folder in (self.out, self._changes, self.working_directory, self._disk / "work"):
            folder.mkdir()
            folder.chmod(0o777)
            if not rootless:
                os.chown(folder, *user)
        lower = self._disk / "lower"  # whose path has no letter that means something to mount
        lower.mkdir()
        owner = directory.stat().st_uid, directory.stat().st_gid
        if rootless or owner == user or not self._is_mapped(directory, lower, owner, user):
            _mount("none", str(directory), lower, "bind")
        layers = f"lowerdir={lower},upperdir={self._changes},workdir={self._disk / 'work'}"
        _mount(
            "overlay",
            "overlay",
            self.working_directory,
            f"nosuid,nodev,{layers},{'userxattr' if rootless else 'redirect_dir=on'}",
        )

    def _is_mapped(self, directory: Path, lower: Path, owner: tuple[int, int], user: tuple[int, int]) -> bool:
        try:
            _mount_mapped(directory, lower, owner, user)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM):
                raise RunError(f"{directory}: cannot be shown to workers as their own: {error}") from error
            self.notes.append(
                f"the script can make new files in {directory}, but not change those that are there: its file system"
                f" takes no id-mapped mounts ({error.strerror})"
            )
            return False
        return True

    def mounts(self, directory: Path) -> list[tuple[str, str]]:
        """Return (target in the node, source) of what is bound into the container."""
        return [(str(directory), str(self.working_directory)), (OUT_IN_NODE, str(self.out))]

    def keep(self, target: Path) -> None:
        """Copy what was written into `target`, if there is anything; links as links, and no device, pipe or socket.

        Raises:
            OSError: The run's directory cannot take it.
        """
        copy_tree(self.out, target)
        changes = target / CHANGES
        while os.path.lexists(changes):
            changes = changes.with_name(f"{changes.name}_")
        copy_tree(self._changes, changes, self._whole)

    def _whole(self, folder: Path) -> Path:
        """Return where all of a folder of changes is: part of one that was moved is in the lower layer alone."""
        is_moved = _REDIRECT in os.listxattr(folder, follow_symlinks=False)
        return self.working_directory / folder.relative_to(self._changes) if is_moved else folder


def copy_tree(source: Path, target: Path, whole: Callable[[Path], Path] = lambda folder: folder) -> None:
    """Copy regular files, with their holes, links as links, and folders.

    Args:
        whole: Returns where the content of a folder is.
    """
    for entry in sorted(os.scandir(source), key=lambda one: one.name):
        goal = target / entry.name
        if entry.is_symlink():
            target.mkdir(parents=True, exist_ok=True)
            goal.symlink_to(os.readlink(entry.path))
        elif entry.is_dir(follow_symlinks=False):
            goal.mkdir(parents=True, exist_ok=True)
            folder = whole(Path(entry.path))
            copy_tree(folder, goal, whole if folder == Path(entry.path) else lambda inner: inner)
        elif stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
            target.mkdir(parents=True, exist_ok=True)
            _copy_file(Path(entry.path), goal)


def _copy_file(source: Path, target: Path) -> None:
    size_bytes = source.stat().st_size
    with source.open("rb") as read, target.open("xb") as write:
        at = 0
        while at < size_bytes:
            try:
                at = os.lseek(read.fileno(), at, os.SEEK_DATA)
            except OSError as error:  # nothing but a hole is left
                if error.errno != errno.ENXIO:
                    raise
                break
            end = os.lseek(read.fileno(), at, os.SEEK_HOLE)
            read.seek(at)
            write.seek(at)
            while at < end and (piece := read.read(min(_COPIED_BYTES, end - at))):
                at += write.write(piece)
        write.truncate(size_bytes)
    shutil.copystat(source, target, follow_symlinks=False)
    target.chmod(stat.S_IMODE(source.stat().st_mode) & 0o777)


def _mount(kind: str, source: str, target: Path, options: str) -> None:
    command = ["mount", "-t", kind, "-o", options, source, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RunError(f"a node's disk for the script: {kind} cannot be mounted: {done.stderr.strip()}")


def _mount_mapped(source: Path, target: Path, owner: tuple[int, int], user: tuple[int, int]) -> None:
    """Mount `source`, read-only, at `target` with the files of `owner` shown as those of `user`, and the reverse.

    Raises:
        OSError: The kernel or the file system does not take such mounts.
    """
    tree = _called(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), _CLONE_TREE | _CLOSE_ON_EXEC)
    namespace = _user_namespace(_swapped(owner[0], user[0]), _swapped(owner[1], user[1]))
    try:
        attributes = (ctypes.c_uint64 * 4)(_READ_ONLY | _ID_MAPPED, 0, 0, namespace)  # set, clear, propagation, user
        size_bytes = ctypes.c_size_t(ctypes.sizeof(attributes))
        _called(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(attributes), size_bytes)
        _called(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _FROM_EMPTY_PATH)
    finally:
        os.close(namespace)
        os.close(tree)


def _swapped(one: int, other: int) -> str:
    """Return a map of ids that swaps two of them, as lines of /proc/PID/uid_map."""
    if one == other:
        return f"0 0 {_LAST_ID}\n"
    low, high = sorted((one, other))
    pieces = [(0, 0, low), (low, high, 1), (low + 1, low + 1, high - low - 1), (high, low, 1)]
    pieces.append((high + 1, high + 1, _LAST_ID - high - 1))
    return "".join(f"{inside} {outside} {count}\n" for inside, outside, count in pieces if count > 0)


def _user_namespace(users: str, groups: str) -> int:
    """Return a descriptor of a new user namespace with these maps."""
    own = os.readlink("/proc/self/ns/user")
    with subprocess.Popen(["unshare", "--user", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        deadline_s = time.monotonic() + _PATIENCE_S
        while os.readlink(f"/proc/{process.pid}/ns/user") == own:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise OSError(errno.EOPNOTSUPP, "no user namespace can be made")
            time.sleep(0.001)
        Path(f"/proc/{process.pid}/uid_map").write_text(users)
        Path(f"/proc/{process.pid}/gid_map").write_text(groups)
        descriptor = os.open(f"/proc/{process.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        process.communicate(b"")
        return descriptor


def _called(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
