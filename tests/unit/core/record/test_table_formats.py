"""Tables as CSV and LaTeX, and which format a file's name asks for."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from testbed.core.errors import InputError
from testbed.core.record.table_formats import aligned, csv_table, format_for, latex_table, write_text


@pytest.mark.parametrize(
    ("given", "output", "form"),
    [
        (None, None, "text"),
        ("csv", None, "csv"),
        (None, "t.tex", "latex"),
        (None, "t.JSON", "json"),
        ("latex", "table.unknown", "latex"),
    ],
)
def test_a_format_is_the_given_one_or_that_of_the_suffix(given: str | None, output: str | None, form: str) -> None:
    assert format_for(given, Path(output) if output else None) == form


def test_a_suffix_that_names_no_format_is_refused() -> None:
    with pytest.raises(InputError, match=r"t\.xls: the suffix names no format; use one of .csv, .tex, .json, .txt"):
        format_for(None, Path("t.xls"))


def test_what_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        write_text(tmp_path / "file" / "t.csv", "text")
    write_text(tmp_path / "new" / "t.csv", "text")
    assert (tmp_path / "new" / "t.csv").read_text() == "text\n"


def test_cells_are_safe_in_each_format() -> None:
    rows = [{"name": "=1+1", "runs": ["a", "b"], "value": None}]
    assert csv_table(["name", "runs", "value"], rows) == "name,runs,value\n'=1+1,a b,"
    lines = latex_table(["a_b", "n"], [["50% ± 1", "x"]], 1, ["a\nb"]).splitlines()
    assert r"a\_b & n \\" in lines and r"50\% $\pm$ 1 & x \\" in lines
    assert "% a?b" in lines and r"\begin{tabular}{lr}" in lines
    assert aligned([["a", "long"], ["longer", "\x1b"]]) == ["a       long", "longer  ?"]


@pytest.mark.parametrize("first", ["[2cm] evil", "*evil", "[", "[evil]{}"])
def test_a_row_is_no_option_of_the_row_before(first: str) -> None:
    lines = latex_table(["a", first], [["x", "y"], [first, "y"]], 1).splitlines()
    rows = [line for line in lines if line.endswith(r"\\")]
    assert len(rows) == 3 and not any(line.startswith(("[", "*")) for line in rows)
    assert latex_table([first], [], 1).splitlines()[3].startswith("{")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-evil", "@evil", "\t=1", "\n=1", " =1", "\uff1d1+1", "\uff20evil"])
def test_no_cell_and_no_heading_is_a_formula(text: str) -> None:
    for row in csv.reader(csv_table([text], [{text: text}, {text: [text, "b"]}]).splitlines()):
        assert row[0].startswith("'") or row[0].startswith("?"), row
