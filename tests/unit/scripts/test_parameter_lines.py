"""Lists of parameters say types and ranges in few words, and what several classes share once."""

from __future__ import annotations

import pytest

from scripts.parameter_lines import Line, listed, shared_lines, values_words


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


def test_what_two_classes_share_is_listed_once_and_other_defaults_are_named() -> None:
    rank, low, other = (
        Line("rank", "=4", "≥1", "Rank. Of what?"),
        Line("rank", "=2", "≥1", "Rank."),
        Line("seed", "", "≥0", "S. It is drawn."),
    )
    shared = shared_lines([[rank, other], [rank], [low]])
    assert list(shared.values()) == [rank]
    assert listed([rank, other], shared) == ["- `seed` (≥0): S.", "- Shared: `rank`."]
    assert other.whole == "- `seed` (≥0): S. It is drawn."
    assert listed([low], shared) == ["- Shared: `rank=2`."]
