"""Tables that users write, as CSV or one number a line: a row is one line, with commas between cells."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator

from testbed.core.units import is_above_0
from testbed.core.user_files.text import shown

MAX_DIGITS = 40
"""Characters of a number; no quantity of ours needs more."""
MAX_TIME_S = 1e7
"""Time in seconds that cannot count from the beginning of a trace or run: four months."""
EPOCH = "is a time of the calendar, or of a machine's clock, and no time of a run"
_MAX_PLAIN_CHARACTERS = 1000
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers, from 1, without empty ones and comments (#)."""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def cells_of(line: str) -> list[str]:
    """Return the cells of one line of a CSV file, separated by commas, without spaces around them.

    Raises:
        ValueError: A quote is not closed, or text follows a closed one, or a cell is too long.
    """
    if '"' not in line and len(line) <= _MAX_PLAIN_CHARACTERS:  # as all lines of most files
        cells = line.split(",")
        has_spaces = " " in line or "\t" in line or not line.isascii()
        return [cell.strip() for cell in cells] if has_spaces else cells
    try:
        return [cell.strip() for cell in next(csv.reader([line], strict=True, skipinitialspace=True))]
    except csv.Error as error:
        if line.count('"') % 2:
            raise ValueError("a quote is not closed; close it on the same line, since a row is one line") from error
        raise ValueError(f"is not CSV: {error}; put a comma between cells") from error


def heading_of(line: str) -> list[str]:
    """Return the names of the columns.

    Raises:
        ValueError: The line cannot be read, or its cells are not separated by commas.
    """
    for separator, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if separator in line and "," not in line:
            raise ValueError(f"cells are separated by {name}; separate them by commas, with points in numbers")
    return cells_of(line)


def is_number(text: str) -> bool:
    """Return True for a text that `number_of` reads as a decimal number, though it may be too long or too large."""
    return _NUMBER.fullmatch(text) is not None


def number_of(text: str) -> float:
    """Return a decimal number; digits are ASCII, without separators.

    Raises:
        ValueError: The text is something else, too long, or not finite.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a number, such as 12.5")
    if len(text) > MAX_DIGITS:
        raise ValueError(f"{shown(text)} has {len(text)} characters; a number has at most {MAX_DIGITS}")
    number = float(text)
    if not math.isfinite(number) or (number == 0 and is_above_0(text)):
        raise ValueError(f"{shown(text)} is too {'large' if number else 'small'}; give one that a computer can hold")
    return number
