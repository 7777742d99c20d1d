"""Ownership of files made under sudo: they are given to the user who called it."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from testbed.core.errors import InputError


@contextlib.contextmanager
def made_for_caller(root: Path, inner: Path) -> Iterator[None]:
    """What is made inside belongs to who called sudo: all of `root` if it was not there before, else `inner` in it."""
    is_new = not root.exists()
    yield
    give_to_caller(root if is_new else inner)


def outermost_new(path: Path) -> Path:
    """The first of its folders that is not there yet, or `path` itself: what is to be given to the caller."""
    return next((folder for folder in reversed(path.parents) if not folder.exists()), path)


def give_to_caller(path: Path) -> None:
    """Files made under sudo belong to who called it.

    A file of root's with several names stays root's: one of them may lie elsewhere.
    """
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if user is None or group is None:
        return
    if path.is_char_device() or path.is_fifo():  # a user may name /dev/stdout for a file
        return
    _give(os.fspath(path), int(user), int(group))
    # by descriptors: who owns a folder could replace it by a link between two steps
    for _, folders, files, descriptor in os.fwalk(path):
        for name in (*folders, *files):
            _give(name, int(user), int(group), descriptor)


def _give(name: str, user: int, group: int, folder: int | None = None) -> None:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1 and found.st_uid == os.geteuid():
        return
    os.chown(name, user, group, dir_fd=folder, follow_symlinks=False)


def place(output: Path) -> Path:
    """Make the folder of `output`; return what is new of its path.

    Raises:
        InputError: it cannot be written there.
    """
    made = outermost_new(output)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"-o {output}: {error.strerror}: {error.filename}") from error
    if output.is_dir() or not os.access(output.parent, os.W_OK):
        raise InputError(f"-o {output}: must be a file in a folder that can be written to")
    return made
