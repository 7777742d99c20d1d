"""Tables as plain text, with aligned columns."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.core.files import printable


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines whose columns are aligned by spaces; the rows are equally long."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in cells) for index in range(len(cells[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
