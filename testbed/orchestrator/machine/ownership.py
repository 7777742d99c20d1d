"""Ownership of files made under sudo: they are given to the user who called it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


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
    """Files made under sudo belong to who called it."""
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if user is None or group is None:
        return
    if path.is_char_device() or path.is_fifo():  # a user may name /dev/stdout for a file
        return
    for found in [path, *path.rglob("*")]:
        os.chown(found, int(user), int(group), follow_symlinks=False)
