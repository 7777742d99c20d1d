"""The check of private words finds them in prose, leaves code and quotations alone, and its list only ever shrinks."""

from __future__ import annotations

import pytest

from scripts import check_words as check


@pytest.mark.parametrize(
    "text",
    [
        "Runs are compared with the baseline.",
        "The key `beside` and the event `seal`.",
        "```sh\nbeside  # anew\n```",
        'The message says "nobody answers".',
        "[the delay shaper](delay-line.md#times-fewer)",
        "[seal.py](../testbed/run/seal.py)",
        "<!-- beside: begin -->",
        "Likelihoods, kinds and resealable boxes.",
    ],
)
def test_plain_words_code_and_quotations_pass(text: str) -> None:
    assert list(check.faults("a.md", text)) == []


@pytest.mark.parametrize(
    ("text", "word", "instead"),
    [
        ("Beside the run.", "Beside", "in addition to"),
        ("It hangs on the link.", "hangs on", "depends on"),
        ("It is held\nagainst the target.", "held against", "compared with"),
        ("Three times as fast.", "times as fast", "N x faster"),
        ("What became of the model.", "What became of", "result"),
        ("A dilation of one's own.", "of one's own", "custom"),
        ("`code`, likewise", "likewise", "repeat the noun"),
    ],
)
def test_private_words_are_found_with_what_to_write(text: str, word: str, instead: str) -> None:
    (line,) = check.faults("a.md", f"One.\n\n{text}")
    assert line.startswith(f"a.md:3: '{word}'")
    assert instead in line


def test_the_list_only_shrinks() -> None:
    two = ["a.md:1: 'anew'", "a.md:2: 'anew'"]
    assert list(check.disagreements({"a.md": two}, {"a.md": 2})) == []
    assert list(check.disagreements({"a.md": two}, {"a.md": 1})) == two
    assert list(check.disagreements({"a.md": two}, {})) == two
    (fewer,) = check.disagreements({"a.md": two[:1]}, {"a.md": 2})
    assert "has 1 words, 2 are listed" in fewer
    (gone,) = check.disagreements({}, {"a.md": 2})
    assert "does not exist" in gone
