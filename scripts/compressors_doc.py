"""Writes the catalogue in docs/compressors.md and its CSV file from the compressors; `make bench` writes the page too.

`--check` refuses what is not so in either; that one lacks a member, as after it was added, is no fault.
"""

from __future__ import annotations

import csv
import inspect
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from compressors.base.compressor import Compressor
from experiments.common.page import between
from testbed.worker.laws.cases import catalogue
from testbed.worker.plugins import compressor_catalogue

ROOT = Path(__file__).resolve().parents[1]
PAGE, TABLE = ROOT / "docs" / "compressors.md", ROOT / "docs" / "tables" / "catalogue.csv"
_ROUTES = {"gather": "Gathered", "sum": "Summed", "own": "Own exchange"}


def rows() -> Iterator[tuple[str, str]]:
    """Yield the route of each compressor, and its line: what it does.

    Variants of a compressor, which are named after it, share its line.
    """
    names = compressor_catalogue.names()
    for name in names:
        if any(_is_variant(name, other) for other in names):
            continue
        codec = _made(name)
        titles = [f"`{name}`", *(_variant(other, name) for other in names if _is_variant(other, name))]
        yield _route(codec), f"- {', '.join(titles)}: {_summary(inspect.getdoc(type(codec)) or '')}."


def table() -> str:
    """Return the CSV file: what each compressor does, its feedback, its promises, and its first paper."""
    found = io.StringIO()
    lines = csv.writer(found, lineterminator="\n")
    lines.writerow(("compressor", "mean", "does", "feedback", "promises", "source", "link"))
    for name in compressor_catalogue.names():
        codec = _made(name)
        text = inspect.getdoc(type(codec)) or ""
        does = (_ROUTES[_route(codec)].lower(), f"{_summary(text)}.")
        lines.writerow((name, *does, codec.feedback_kind, ", ".join(_promises(codec)), *_paper(text)))
    return found.getvalue()


def _is_variant(name: str, of: str) -> bool:
    part = compressor_catalogue.part
    return name.startswith(f"{of}_") and part(name).target == part(of).target


def _variant(name: str, of: str) -> str:
    """Return the name of a variant, and the parameters that it changes."""
    usual, own = (compressor_catalogue.part(one).params for one in (of, name))
    return f"`{name}` ({', '.join(f'`{key}={value}`' for key, value in own.items() if value != usual.get(key))})"


def _made(name: str) -> Compressor:
    return catalogue.case(compressor_catalogue.part(name)).make()


def _summary(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).rstrip(".")


def _paper(text: str) -> tuple[str, str]:
    """Return the first author and the venue of the first paper, and a link where it has an arXiv id."""
    text = " ".join(text.split())
    found = re.search(r'"[^"]{12,}"([^"]*)', text)
    if found is None:
        return "", ""
    author = re.split(r",| and | et al", text[: found.start()].split(". ")[-1])[0]
    venue = re.split(r"[,;:(.]", found[1].lstrip(", "))[0].strip()
    number = re.search(r"arXiv:(\d{4}\.\d{4,5})", found[1].split(";")[0])
    return f"{author}, {venue}", f"https://arxiv.org/abs/{number[1]}" if number else ""


def _route(codec: Compressor) -> str:
    if codec.traits.own_rounds:
        return "own"
    return "sum" if codec.traits.sum_dtype is not None else "gather"


def _promises(codec: Compressor) -> Iterator[str]:
    traits = codec.traits
    if traits.unbiased:
        yield "unbiased"
    if traits.contraction:
        yield f"d={traits.contraction:.3g}"
    if traits.max_world is not None:
        yield f"≤{traits.max_world} ranks"
    if not traits.carries_non_finite:
        yield "refuses NaN" if traits.carries_non_finite is False else "some refuse NaN"
    if traits.owns != "nothing":
        yield f"owns the {traits.owns}"


def page() -> str:
    found = list(rows())
    parts = [
        f"**{title}**\n\n" + "\n".join(line for named, line in found if named == route)
        for route, title in _ROUTES.items()
    ]
    return between(PAGE.read_text(), "catalogue", "\n\n".join(parts))


def main() -> int:
    wrong = False
    for path, content in ((PAGE, page()), (TABLE, table())):
        if "--check" not in sys.argv[1:]:
            path.write_text(content)
            continue
        for line in sorted(set(path.read_text().splitlines()) - set(content.splitlines())):
            wrong = True
            name = path.relative_to(ROOT)
            print(f"{name} says what is not so, run scripts/compressors_doc.py: {line[:100]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
