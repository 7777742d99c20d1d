"""Draws facts from the documentation of an earlier commit and shows where today's documentation may still have them.

`python3 scripts/draw_facts.py a8c9a09 --seed 50 --number 200` prints each fact with the passages that share most of its
rare words and figures. A person decides whether the fact is still there. A fact is a sentence, an entry of a list or a
row of a table with at least six words.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "LIMITATIONS.md", "CONTRIBUTING.md", "docs")
_WORD = re.compile(r"[A-Za-z_][\w.]*[A-Za-z_]\w*|\d[\d.,]*\d|\d")
_STOPS = re.compile(r"(?<=[.:;?!])\s+(?=[A-Z`*\[(])")
_LEAST_WORDS = 6


def passages(text: str) -> Iterator[str]:
    """Yield the sentences, entries and rows of a page, without blocks of code, headings and comments."""
    text = re.sub(r"^```.*?^```|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) )", text):
        for line in block.splitlines() if block.lstrip().startswith("|") else [" ".join(block.split())]:
            if not line.startswith("#") and not set(line) <= set("|-: "):
                yield from (part for part in _STOPS.split(line) if part)


def earlier(commit: str) -> dict[str, str]:
    """Return the pages of a commit by path, decisions left out."""
    names = _git("ls-tree", "-r", "--name-only", commit, *PAGES).splitlines()
    return {name: _git("show", f"{commit}:{name}") for name in names if _is_page(name)}


def today() -> Iterator[tuple[str, str]]:
    """Yield (path, passage) of all pages, of CSV files and of the declarations that commands print."""
    names = _git("ls-files", *PAGES, "SECURITY.md", "CHANGELOG.md", "dashboards/README.md").splitlines()
    for name in names:
        if _is_page(name):
            yield from ((name, one) for one in passages((ROOT / name).read_text()))
        elif name.endswith(".csv"):
            yield from ((name, line) for line in (ROOT / name).read_text().splitlines())


def _is_page(name: str) -> bool:
    return name.endswith(".md") and "/decisions/" not in name


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def terms(text: str) -> set[str]:
    return {word.lower().rstrip(".,").replace(",", "") for word in _WORD.findall(text)}


def likely(fact: str, found: Iterable[tuple[str, str, set[str]]], weights: Counter[str], count: int) -> list[str]:
    """Return the passages that share most with a fact, the best first, each as `path: passage`."""
    wanted = terms(fact)
    total = sum(_weight(word, weights) for word in wanted)
    scored = [
        (sum(_weight(word, weights) for word in shared) / (total + 0.1 * len(own)), f"{path}: {text}")
        for path, text, own in found
        if (shared := wanted & own)
    ]
    return [text for _, text in sorted(scored, reverse=True)[:count]]


def _weight(word: str, counts: Counter[str]) -> float:
    return math.log(1 + 20_000 / (1 + counts[word]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--seed", type=int, default=50)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--passages", type=int, default=3)
    given = parser.parse_args()
    facts = [(path, one) for path, text in earlier(given.commit).items() for one in passages(text)]
    facts = [(path, one) for path, one in facts if len(one.split()) >= _LEAST_WORDS]
    found = [(path, text, terms(text)) for path, text in today()]
    weights = Counter(word for _, _, own in found for word in own)
    print(f"{given.number} of {len(facts)} facts of {given.commit}, seed {given.seed}")
    for number, (path, fact) in enumerate(random.Random(given.seed).sample(facts, given.number), 1):
        print(f"\n{number}. {path}: {fact}")
        for passage in likely(fact, found, weights, given.passages):
            print(f"    {passage}")


if __name__ == "__main__":
    main()
