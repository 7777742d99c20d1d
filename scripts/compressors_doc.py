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
_ROUTES = {"gather": "Gathered", "sum": "Summed", "own": "Own exchange"}


def rows() -> Iterator[tuple[str, str]]:
    """Yield the route of each compressor, and its line: what it does, feedback and promises, and its paper.

    Variants of a compressor, which are named after it, share its line.
    """
    names = compressor_catalogue.names()
    for name in names:
        if any(_is_variant(name, other) for other in names):
            continue
        codec = _made(name)
        text, said = inspect.getdoc(type(codec)) or "", _said(codec)
        titles = [f"`{name}`", *(_variant(other, name, said) for other in names if _is_variant(other, name))]
        about = "; ".join(filter(None, (_summary(text), said, _paper(text))))
        yield _route(codec), f"- {', '.join(titles)}: {about}."


def _is_variant(name: str, of: str) -> bool:
    part = compressor_catalogue.part
    return name.startswith(f"{of}_") and part(name).target == part(of).target


def _variant(name: str, of: str, said: str) -> str:
    """Return the name of a variant, the parameters that it changes, and its promises if they are others."""
    usual, own = (compressor_catalogue.part(one).params for one in (of, name))
    changed = [f"`{key}={value}`" for key, value in own.items() if value != usual.get(key)]
    other = _said(_made(name))
    return f"`{name}` ({', '.join(changed)}{'' if other == said else f'; {other}'})"


def _made(name: str) -> Compressor:
    return catalogue.case(compressor_catalogue.part(name)).make()


def _said(codec: Compressor) -> str:
    """Return the feedback of a compressor and its promises."""
    return ", ".join([*([] if codec.feedback_kind == "off" else [codec.feedback_kind]), *_promises(codec)])


def _summary(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).rstrip(".")


def _paper(text: str) -> str:
    """Return the first author and the venue of the first paper, with a link where it has an arXiv id."""
    text = " ".join(text.split())
    found = re.search(r'"[^"]{12,}"([^"]*)', text)
    if found is None:
        return ""
    author = re.split(r",| and | et al", text[: found.start()].split(". ")[-1])[0]
    venue = re.split(r"[,;:(.]", found[1].lstrip(", "))[0].strip()
    number = re.search(r"arXiv:(\d{4}\.\d{4,5})", found[1].split(";")[0])
    said = f"{author}, {venue}"
    return f"[{said}](https://arxiv.org/abs/{number[1]})" if number else said


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
    if "--check" in sys.argv[1:]:
        untrue = set(PAGE.read_text().splitlines()) - set(page().splitlines())
        for line in sorted(untrue):
            print(f"docs/compressors.md says what is not so, run scripts/compressors_doc.py: {line[:100]}")
        return 1 if untrue else 0
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
