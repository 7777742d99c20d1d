"""Lists of parameters say types and ranges in few words; their CSV file has everything."""

from __future__ import annotations

import pytest

from scripts.parameter_lines import Line, csv_text, values_words


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        ("whole number", "at least 1", "int ≥1"),
        ("whole number", "at least 1 and at most 9", "int 1–9"),
        ("whole number, positions", "at least 1 and at most 9, or null", "int 1–9 positions, null"),
        ("number", "in (0, 1]", "(0,1]"),
        ("number", "above 0 and below 10, or null", "(0,10), null"),
        ("number, s", "above 0", ">0 s"),
        ("rate as text with a unit", "", "rate"),
        ("choice", "cpu, h200", "cpu|h200"),
        ("choice", ", ".join("abcdefghijklm"), "a|b|c|…|l|m"),
        ("true or false", "null", "true/false, null"),
        ("a compressor, given as {_target_: …}", "", "compressor"),
    ],
)
def test_ranges_are_written_as_intervals(kind: str, values: str, words: str) -> None:
    assert values_words(kind, values) == words


def test_a_line_is_short_with_its_key_alone_and_a_row_with_everything() -> None:
    rank, seed, rules = (
        Line("rank", "=4", "≥1", "Rank. Of what?"),
        Line("seed", "", "required, int ≥0", "Seed."),
        Line("rules", f"=[{'a' * 70}]", "list of rules", "Rules."),
    )
    assert [rank.short, seed.short, rules.short] == ["`rank=4`", "`seed` (required)", "`rules=…`"]
    assert rank.whole == "- `rank=4` (≥1): Rank. Of what?"
    assert rules.whole == f"- `rules=[{'a' * 58}…` (list of rules): Rules."
    assert csv_text([rank.row("compressor", "powersgd"), rules.row("compressor", "policy")]).splitlines() == [
        "kind,name,key,default,values,meaning",
        "compressor,powersgd,rank,4,≥1,Rank. Of what?",
        f"compressor,policy,rules,[{'a' * 70}],list of rules,Rules.",
    ]
