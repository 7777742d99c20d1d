"""Tables that users write: one row a line, commas between cells, ASCII digits."""

from __future__ import annotations

import pytest

from testbed.core.user_files.tables import cells_of, heading_of, number_of, numbered_lines


def test_lines_keep_their_numbers() -> None:
    assert list(numbered_lines("# a\n\n x \ny\x0bz\n")) == [(3, "x"), (4, "y\x0bz")]


@pytest.mark.parametrize(
    ("line", "cells"), [('a, "b,c",d', ["a", "b,c", "d"]), ('5" x,y', ['5" x', "y"]), (",", ["", ""])]
)
def test_cells_are_separated_by_commas(line: str, cells: list[str]) -> None:
    assert cells_of(line) == cells


@pytest.mark.parametrize("line", ['0,"5 Mbit/s', '"', 'a,"b"c', "x" * 200_000, '"' + "x" * 140_000 + '"'])
def test_a_row_that_cannot_be_read_says_why(line: str) -> None:
    with pytest.raises(ValueError, match=r"quote is not closed|is not CSV"):
        cells_of(line)


@pytest.mark.parametrize(("line", "name"), [("t_s;rate", "semicolons"), ("t_s\trate", "tabs"), ("t_s|rate", "bars")])
def test_other_separators_are_named(line: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"separated by {name}; separate them by commas"):
        heading_of(line)


@pytest.mark.parametrize("text", ["1_000", "١", "nan", "inf", "0x10", "1,5", "", "1" * 41, "1e999", "--1"])
def test_a_number_is_decimal_bounded_and_finite(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a number|at most|too large"):
        number_of(text)


def test_a_number_may_have_an_exponent() -> None:
    assert [number_of(text) for text in ("12.", "-.5", "1e3")] == [12.0, -0.5, 1000.0]
