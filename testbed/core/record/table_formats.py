"""Tables as CSV, LaTeX and JSON, and where they are written: what `list`, `compare` and sweeps have in common."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError
from testbed.core.files import printable, spreadsheet_safe

FORMATS = ("text", "csv", "latex", "json")
SUFFIXES = {".csv": "csv", ".tex": "latex", ".json": "json", ".txt": "text"}
"""Formats by the suffix of a file's name."""
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "…": r"\dots{}",
    "µ": r"\textmu{}",
}


def format_for(given: str | None, output: Path | None) -> str:
    """Return the format of a table: the one that was given, else the one of the file's suffix, else text.

    Raises:
        InputError: The suffix is unknown and no format was given.
    """
    if given is not None:
        return given
    if output is None:
        return "text"
    if output.suffix.lower() not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise InputError(f"--output {output}: the suffix names no format; use one of {known}, or give --format")
    return SUFFIXES[output.suffix.lower()]


def write_text(output: Path, text: str) -> None:
    """Write a table to a file, and make the file's folder if it does not exist.

    Raises:
        InputError: It cannot be written.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--output {output}: cannot be written: {error.strerror}") from error


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines whose columns are aligned by spaces; the rows are equally long."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in cells) for index in range(len(cells[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def csv_table(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return CSV with a line of headings; what is missing is empty, and a list is joined by spaces."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(name) for name in names])
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in names])
    return out.getvalue().rstrip("\n")


def _cell(value: Any) -> object:
    return spreadsheet_safe(" ".join(map(str, value)) if isinstance(value, list | tuple) else value)


def latex_table(headings: Sequence[str], rows: Iterable[Sequence[str]], words: int, notes: Iterable[str] = ()) -> str:
    r"""Return a `tabular` for the packages booktabs and, for quotation marks, fontenc with T1.

    Args:
        headings: One for each column.
        rows: Cells as text, which are escaped here.
        words: Number of columns, from the left, that hold words; the others are aligned to the right.
        notes: Lines above the table, as comments.
    """
    return "\n".join(
        [
            r"% \usepackage{booktabs} and \usepackage[T1]{fontenc}",
            *(f"% {printable(note)}" for note in notes),
            rf"\begin{{tabular}}{{{'l' * words + 'r' * (len(headings) - words)}}}",
            r"\toprule",
            _latex_row(headings),
            r"\midrule",
            *(_latex_row(row) for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def _latex_row(row: Sequence[str]) -> str:
    r"""Return a line. What it begins with must be no option of the row before, as in `\\ [2cm]` and `\\ *`."""
    line = " & ".join(escaped(cell) for cell in row)
    return (f"{{{line[0]}}}{line[1:]}" if line.startswith(("[", "*")) else line) + r" \\"


def escaped(cell: object) -> str:
    """Return a cell for LaTeX, with every character escaped that means something to it."""
    return "".join(_LATEX.get(character, character) for character in printable(cell))
