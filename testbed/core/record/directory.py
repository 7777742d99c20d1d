"""A directory held open, whose names are never followed out of it.

Who owns a directory may replace any name in it at any moment: by a link to a file of root's, by a pipe, by a device. So
the directory is looked up once, and what is written goes to a new file of a name that nobody knows.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

from testbed.core.files import require_plain

_PART = ".part"


class Directory:
    """Context manager: the directory at a path, which is no link.

    Raises:
        OSError: There is none, or a link leads there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @contextlib.contextmanager
    def replaced(self, name: str, mode: int = 0o644) -> Iterator[BinaryIO]:
        """Take the place of a file at the end of the block, whatever lay there; a block that fails changes nothing."""
        part = f".{name}.{secrets.token_hex(8)}{_PART}"
        new = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(part, new, mode, dir_fd=self._descriptor), "w+b") as file:
                os.fchmod(file.fileno(), mode)
                yield file
            os.replace(part, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except BaseException:
            self.remove(part)
            raise

    def remove(self, name: str) -> None:
        """Remove a name that is no directory; one that is not there is no fault."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def remove_parts(self) -> None:
        """Remove what a writer left that was killed."""
        for name in self.names():
            if name.startswith(".") and name.endswith(_PART):
                self.remove(name)

    def modified_s(self, name: str) -> float | None:
        """Return when a regular file was written last, as Unix time; None if there is none."""
        try:
            found = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
            require_plain(name, found)
        except (FileNotFoundError, ValueError):
            return None
        return found.st_mtime

    def names(self) -> list[str]:
        return sorted(os.listdir(self._descriptor))


def open_lock(path: Path) -> BinaryIO:
    """Open a lock file, made if it is not there, and never emptied; its folder must be one in which only we write.

    Raises:
        OSError: It is a link, or somebody else's.
        ValueError: It is no regular file.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    try:
        require_plain(path.name, os.fstat(descriptor))
    except ValueError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "r+b")


def is_ours_alone(path: Path) -> bool:
    """Return True for a directory, and no link to one, in which nobody but this process's user and root may write."""
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
