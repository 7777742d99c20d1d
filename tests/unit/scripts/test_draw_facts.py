"""Facts of earlier pages are drawn whole, and looked for by their rare words."""

from __future__ import annotations

from collections import Counter

from scripts.draw_facts import likely, passages, terms

PAGE = """# Title

The link keeps 1,000 Mbit/s. It is `valid`
for 0.3 s.

```sh
not a fact
```

- An entry of
  two lines.

| head | of a table |
| --- | --- |
| none | 795 |
"""


def test_sentences_entries_and_rows_are_facts_and_code_and_headings_are_not() -> None:
    assert list(passages(PAGE)) == [
        "The link keeps 1,000 Mbit/s.",
        "It is `valid` for 0.3 s.",
        "- An entry of two lines.",
        "| head | of a table |",
        "| none | 795 |",
    ]


def test_figures_are_the_same_with_and_without_separators() -> None:
    assert terms("The link keeps 1,000 Mbit/s.") == {"the", "link", "keeps", "1000", "mbit"}


def test_passages_that_share_rare_words_come_first() -> None:
    texts = ("the link is slow", "the link keeps 1000 Mbit/s", "the rest")
    found = [("a.md", text, terms(text)) for text in texts]
    weights = Counter(word for _, _, own in found for word in own)
    assert likely("The link keeps 1,000 Mbit/s.", found, weights, 2) == [
        "a.md: the link keeps 1000 Mbit/s",
        "a.md: the link is slow",
    ]
