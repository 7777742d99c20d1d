"""Reading what may be damaged, or put there by somebody else: bounded, from regular files alone, and as data only.

A name in a run directory may be a link that leads out of it, a pipe that holds up whoever opens it, or a file that
fills the memory.
"""

from __future__ import annotations

import json
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

MAX_OBJECT_BYTES = 50_000_000
"""A summary is some kilobytes, a spec with traces in it some megabytes; a larger file is something else."""
MAX_LINE_CHARACTERS = 10_000_000
_MAX_INTEGER, _MAX_FIGURE = 2**64, 1e150
_SPARSE_BYTES, _SPARSE_RATIO = 64_000_000, 1000
"""A larger file that takes so much less of the disk is no record: no file system packs one like that."""
_SUSPECT = re.compile(r"NaN|Infinity|[0-9]{19}|[eE][+-]?[0-9]{3}|\\u[dD][89a-fA-F]")
"""Pattern of values that strict JSON cannot hold: constants, numbers that are too large, halves of surrogate pairs."""


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
        require_plain(path.name, os.fstat(descriptor))
    except ValueError:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path.name} is {'a link' if stat.S_ISLNK(mode) else 'no regular file'}")


def require_plain(name: str, found: os.stat_result) -> None:
    """Check what was opened under `name`.

    Raises:
        ValueError: It is no regular file, or claims far more bytes than it takes of the disk.
    """
    _require_regular(Path(name), found.st_mode)
    taken_bytes = found.st_blocks * 512
    if found.st_size > max(_SPARSE_BYTES, taken_bytes * _SPARSE_RATIO):
        raise ValueError(f"{name} is no such file of ours: it claims {found.st_size} bytes and takes {taken_bytes}")


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
    return object_of(text, path.name)


def object_of(text: str, name: str) -> dict[str, Any]:
    """Return the one JSON object of a text; what is no number is None.

    Raises:
        ValueError: It holds something else.
    """
    try:
        data = parse_json(text, strict=False)
    except ValueError as error:
        raise ValueError(f"{name} is not JSON") from error
    if not isinstance(data, dict):
        raise ValueError(f"{name} holds no object")
    return data


def parse_json(text: str, *, strict: bool) -> Any:
    """Return the value of a JSON text that somebody else has written.

    Args:
        strict: Refuse NaN, infinity, integers of more than 64 bits, and other numbers beyond 1e150, which have no
            finite sum of squares; else they are None.

    Raises:
        ValueError: It is not JSON, is nested too deeply, or holds half of a surrogate pair, which is no Unicode.
    """
    try:
        if not _SUSPECT.search(text):
            return json.loads(text)
        otherwise = _refuse if strict else _none
        data = json.loads(
            text,
            parse_constant=otherwise,
            parse_float=lambda digits: _within(float(digits), _MAX_FIGURE, otherwise),
            parse_int=lambda digits: _within(int(digits), _MAX_INTEGER, otherwise),
        )
        json.dumps(data, ensure_ascii=False).encode()
    except RecursionError as error:  # thousands of brackets in each other
        raise ValueError("it is nested too deeply") from error
    except UnicodeEncodeError as error:
        raise ValueError("it holds half of a surrogate pair, which is no text") from error
    return data


def _within(value: float, most: float, otherwise: Callable[[str], None]) -> float | None:
    if -most <= value <= most:
        return value
    otherwise("so large a number")
    return None


def _none(_: str) -> None:
    return None


def _refuse(what: str) -> None:
    raise ValueError(f"{what} is no number that can be kept")


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
    # those of full width too, which some take for the same
    return f"'{text}" if unicodedata.normalize("NFKC", text.lstrip()[:1]).startswith(("=", "+", "-", "@")) else text


def finite(value: object) -> float | int | None:
    """Return a number of a record that figures can be made of; None for what is none.

    None too for truth values, integers of more than 64 bits, and what is so large that sums of squares are infinite.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if abs(value) < (_MAX_FIGURE if isinstance(value, float) else _MAX_INTEGER) else None
