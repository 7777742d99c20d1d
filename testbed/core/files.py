"""Reading what may be damaged, or put there by somebody else: bounded, from regular files alone, and as data only.

A name in a run directory may be a link that leads out of it, a pipe that holds up whoever opens it, or a file that
fills the memory.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

MAX_OBJECT_BYTES = 50_000_000
"""A summary is some kilobytes, a spec with traces in it some megabytes; a larger file is something else."""
MAX_LINE_CHARACTERS = 10_000_000


def open_regular(path: Path) -> TextIO:
    """Open a file for reading; what is no UTF-8 in it is replaced.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is a link, a pipe, a directory, a device.
    """
    return os.fdopen(_descriptor(path), encoding="utf-8", errors="replace")


def open_regular_bytes(path: Path) -> BinaryIO:
    """Likewise, as it is."""
    return os.fdopen(_descriptor(path), "rb")


def _descriptor(path: Path) -> int:
    _require_regular(path, path.lstat().st_mode)
    # what replaced it since must neither be followed nor block
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _require_regular(path, os.fstat(descriptor).st_mode)
    except ValueError:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path.name} is {'a link' if stat.S_ISLNK(mode) else 'no regular file'}")


def is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def read_object(path: Path, most_bytes: int = MAX_OBJECT_BYTES) -> dict[str, Any]:
    """A file's one JSON object; what JSON calls NaN and Infinity is None.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is no regular file, larger than `most_bytes`, or holds something else.
    """
    with open_regular(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > most_bytes:
            raise ValueError(f"{path.name} is no such file of ours ({size_bytes} bytes)")
        text = file.read(most_bytes)
    try:
        data = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:  # thousands of brackets in each other are a recursion
        raise ValueError(f"{path.name} is not JSON") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path.name} holds no object")
    return data


def whole_lines(file: TextIO) -> Iterator[str]:
    """Every line that ends in a newline; one beyond all measure comes in pieces, of which the last one ends so."""
    while line := file.readline(MAX_LINE_CHARACTERS):
        if line.endswith("\n"):
            yield line


def printable(value: object) -> str:
    """As text that steers no terminal: no escape sequence, no line end, no change of direction."""
    return "".join(character if character.isprintable() else "?" for character in str(value))


def spreadsheet_safe(value: object) -> object:
    """For a cell of a CSV file; a text that begins with one of these a spreadsheet takes for a formula, and runs it.

    >>> spreadsheet_safe("=1+1"), spreadsheet_safe("topk"), spreadsheet_safe(-1.5)
    ("'=1+1", 'topk', -1.5)
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
