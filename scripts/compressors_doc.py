"""Writes the catalogue in docs/compressors.md from the compressors; `make bench` does so too.

`--check` refuses a page that says what is not so; that it lacks a member, as after one was added, is no fault.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from compressors.base.compressor import Compressor
from experiments.common.page import between
from testbed.worker.laws.cases import catalogue
from testbed.worker.plugins import compressor_catalogue

PAGE = Path(__file__).resolve().parents[1] / "docs" / "compressors.md"


def rows() -> Iterator[tuple[str, ...]]:
    for name in compressor_catalogue.names():
        codec = catalogue.case(compressor_catalogue.part(name)).make()
        text = inspect.getdoc(type(codec)) or ""
        yield name, _summary(text), _paper(text), _route(codec), _promises(codec), codec.feedback_kind


def _summary(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).rstrip(".")


def _paper(text: str) -> str:
    """Return the first author and the venue of the first paper, with a link where it has an arXiv id."""
    text = " ".join(text.split())
    found = re.search(r'"[^"]{12,}"([^"]*)', text)
    if found is None:
        return "-"
    author = re.split(r",| and | et al", text[: found.start()].split(". ")[-1])[0]
    venue = re.split(r"[,;:(.]", found[1].lstrip(", "))[0].strip()
    number = re.search(r"arXiv:(\d{4}\.\d{4,5})", found[1].split(";")[0])
    said = f"{author}, {venue}"
    return f"[{said}](https://arxiv.org/abs/{number[1]})" if number else said


def _route(codec: Compressor) -> str:
    if codec.traits.own_rounds:
        return "own"
    return "sum" if codec.traits.sum_dtype is not None else "gather"


def _promises(codec: Compressor) -> str:
    traits = codec.traits
    said = ["unbiased"] if traits.unbiased else []
    if traits.contraction:
        said.append(f"d = {traits.contraction:.3g}")
    if traits.max_world is not None:
        said.append(f"at most {traits.max_world} ranks")
    if traits.owns != "nothing":
        said.append(f"owns the {traits.owns}")
    return ", ".join(said) or "-"


def page() -> str:
    heads = ("name", "what it does", "paper (first author)", "route", "promises", "feedback")
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ("---",) * len(heads), *rows())]
    return between(PAGE.read_text(), "catalogue", "\n".join(lines))


def main() -> int:
    if "--check" in sys.argv[1:]:
        untrue = set(PAGE.read_text().splitlines()) - set(page().splitlines())
        for line in sorted(untrue):
            print(f"docs/compressors.md says what is not so, run scripts/compressors_doc.py: {line[:100]}")
        return 1 if untrue else 0
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
