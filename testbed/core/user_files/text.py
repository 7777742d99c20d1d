"""Text files that users write, such as topologies and traces: bounded, UTF-8, and refused in one line a fault.

Nothing is repaired: a file is read as it is written, or refused with the line at fault and the remedy. Reading ends
soon for any input, because special files are not opened, and sizes, cells and digits are bounded.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from testbed.core.errors import InputError
from testbed.core.files import printable

MAX_TRACE_BYTES = 20_000_000
_MAX_SHOWN = 60
_MAX_FAULTS, _MAX_FAULT_CHARACTERS = 5, 600

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
_WIDE = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def read_user_text(path: Path, most_bytes: int = MAX_TRACE_BYTES, where: str = "") -> str:
    """Return the text of a file, without a byte-order mark, with newlines as the only ends of lines.

    Args:
        most_bytes: Size of the largest file that is read.
        where: Beginning of the fault; empty: the path.

    Raises:
        InputError: The file cannot be read, is no regular file, is too large, is not UTF-8, or holds control
            characters; one line.
    """
    where = printable(where or path)
    try:
        data = _bytes_of(path, most_bytes)
    except OSError as error:
        raise InputError(f"{where}: cannot be read: {error.strerror}; give the path of a file") from error
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    if data.startswith(_WIDE):
        raise InputError(f"{where}, line 1: is UTF-16 or UTF-32, not UTF-8; save it as UTF-8")
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{error.object[error.start]:02x}"
        raise InputError(f"{where}, line {line}: is not UTF-8 text ({found}); save it as UTF-8") from error
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if found_control := control_character(text):
        line = text.count("\n", 0, text.index(found_control)) + 1
        raise InputError(f"{where}, line {line}: holds the control character {code_of(found_control)}; remove it")
    return text


def _bytes_of(path: Path, most_bytes: int) -> bytes:
    """Return the content.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no regular file, or too large, or the path is none.
    """
    if "\0" in str(path):
        raise ValueError("a path cannot hold the character U+0000; remove it")
    _require_file(path.stat().st_mode)
    # it may have been replaced since: opening must not block on a pipe
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        _require_file(os.fstat(descriptor).st_mode)
        data = file.read(most_bytes + 1) or b""
    if len(data) > most_bytes:
        raise ValueError(f"is larger than {most_bytes:,} bytes, the most that is read; shorten it")
    return data


def _require_file(mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = next((what for is_kind, what in _KINDS if is_kind(mode)), "no regular file")
        raise ValueError(f"is {kind}; give the path of a text file")


def control_character(text: str) -> str | None:
    """Return the first character of a text that no file of a user may hold, or None."""
    match = _CONTROL.search(text)
    return match[0] if match else None


def code_of(character: str) -> str:
    """Return a character's code point, such as U+0000."""
    return f"U+{ord(character):04X}"


def shown(text: object) -> str:
    """Return a text for a fault: in quotes, in one line, shortened."""
    line = printable(str(text)[: _MAX_SHOWN + 1])
    return repr(line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 1] + "…")


def some(names: Sequence[str], most: int = 10) -> str:
    """Return the first names in quotes, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def listed(faults: Sequence[str], where: object, most: int = _MAX_FAULTS) -> Iterator[str]:
    """Yield the first faults of one file, each in one line that is not too long, and how many more there are."""
    for fault in faults[:most]:
        yield printable(fault)[:_MAX_FAULT_CHARACTERS]
    if len(faults) > most:
        yield f"{where}: and {len(faults) - most} more faults"
