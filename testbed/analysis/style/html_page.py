"""Pieces of a self-contained HTML page. Whatever came from a record is escaped here and nowhere else."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

_CSS = """
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 1240px;
  margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.4em; overflow-wrap: anywhere; } h2 { font-size: 1.1em; margin: 2em 0 .5em; }
h3 { font-size: 13px; font-weight: 600; margin: 0 0 .3em; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid #ddd; vertical-align: top; }
th { border-bottom: 1px solid #888; white-space: nowrap; } td.number, th.number { text-align: right; }
.lines td, .name { white-space: nowrap; }
td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 9em; }
.lines td:first-child { overflow-wrap: break-word; min-width: 12em; } .wide { overflow-x: auto; }
.wide + .wide { margin-top: 1.2em; }
.verdict { border-left: 8px solid; padding: .4em 1em; background: #f6f6f6; overflow-wrap: anywhere; }
.valid { border-color: #009E73; } .suspect { border-color: #E69F00; } .invalid, .unknown { border-color: #D55E00; }
figure { margin: 0; min-width: 0; }
.figure svg { max-width: 100%; height: auto; }
.swatch { vertical-align: -2px; margin-right: .5em; }
.note { color: #555; font-size: 13px; max-width: 75em; overflow-wrap: anywhere; }
a { color: #0050a0; } details { margin: 1em 0; } summary { cursor: pointer; }
@media (max-width: 640px) {
  body { font-size: 14px; margin: 1em auto; padding: 0 .8em; } th, td { padding-right: 10px; }
  .figure { overflow-x: auto; } .figure svg { min-width: 600px; max-width: none; }
}
@media print {
  @page { margin: 12mm; }
  body { font-size: 10pt; max-width: none; margin: 0; padding: 0; }
  table { font-size: 7.5pt; } table.lines { font-size: 6.2pt; } .note { font-size: 8pt; }
  thead { display: table-header-group; }
  th, td { padding-right: 6px; white-space: normal !important; } td:first-child { min-width: 0; }
  .wide { overflow: visible; }
  h2, h3 { break-after: avoid; } figure, .figure, tr, .verdict { break-inside: avoid; }
  a { color: inherit; text-decoration: none; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Even if a record's text slipped through unescaped, no browser would run it or fetch anything for it."""


@dataclass(frozen=True)
class Scripts:
    """Scripts of a page with figures. The policy names each by its digest, so that no other one runs."""

    data: Mapping[str, tuple[str, str]]
    """Type and text of script elements that hold data, by id."""
    code: str
    """Script of the page."""
    loaded: tuple[str, ...] = ()
    """Scripts that `code` puts into the page."""

    def policy(self) -> str:
        digests = (hashlib.sha256(code.encode()).digest() for code in (self.code, *self.loaded))
        known = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
        return f"{_POLICY}; script-src {known}; img-src data: blob:"

    def markup(self) -> str:
        held = "".join(
            f'<script type="{kind}" id="{name}">{text}</script>\n' for name, (kind, text) in self.data.items()
        )
        return f"{held}<script>{self.code}</script>"


_SPACES = "\n\t\N{NO-BREAK SPACE}"


class Html(str):
    """Markup of ours, which `table` takes as it is."""


def text(value: object) -> str:
    """`value` as escaped text; missing is a dash."""
    if isinstance(value, Html):
        return value
    return "-" if value is None else html.escape(_shown(str(value)))


def _shown(words: str) -> str:
    return words if words.isprintable() else "".join(map(_shown_one, words))


def _shown_one(character: str) -> str:
    """A character of text; one that steers what is around it, as a change of direction does, is shown as unknown."""
    return character if character.isprintable() or character in _SPACES else "\N{REPLACEMENT CHARACTER}"


def document(title: str, *sections: str, style: str = "", scripts: Scripts | None = None) -> str:
    """Return a page.

    Args:
        style: CSS in addition to what all pages share.
        scripts: None for a page that runs none.
    """
    policy, code = (scripts.policy(), f"{scripts.markup()}\n") if scripts else (_POLICY, "")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{text(title)}</title>\n<style>{_CSS}{style}</style>\n</head>\n<body>\n<h1>{text(title)}</h1>\n"
        + "\n".join(sections)
        + f"\n{code}</body>\n</html>\n"
    )


def section(title: str, *content: str) -> str:
    return f"<h2>{text(title)}</h2>\n" + "\n".join(content)


def note(words: str) -> str:
    return f'<p class="note">{text(words)}</p>'


def link(words: object, directory: Path, page: Path, *parts: str) -> Html:
    """To a file below `directory`, relative to where `page` lies: both can be moved together."""
    address = os.path.relpath(directory.joinpath(*parts).absolute(), page.absolute().parent)
    # a path may begin with what looks like a scheme, as in a:b
    return Html(f'<a href="./{quote(address)}">{text(words)}</a>')


def named(picture: str, name: object, more: object) -> Html:
    """`name` on one line with a picture of ours, what else is to say behind it."""
    return Html(f'<span class="name">{picture}{text(name)}</span> {text(more)}')


def wide_figure(svg: str) -> str:
    """Return the place of an <svg> element that keeps its size on a phone and is scrolled there."""
    lines = map(_shown, svg.split("\n"))  # it holds names of a record too
    return '<div class="figure">' + "\n".join(lines) + "</div>"


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Iterable[str] = (),
    kind: str = "text",
    css_classes: Sequence[str] = (),
) -> str:
    """
    Args:
        numbers: headings of the columns that are aligned to the right.
        kind: "lines" for rows of short cells, of which only the first is ever broken.
        css_classes: of the rows, in their order; ours.
    """
    right = set(numbers)
    classes = [' class="number"' if heading in right else "" for heading in headings]
    head = _cells("th", headings, classes)
    opened = itertools.chain((f'<tr class="{name}">' for name in css_classes), itertools.repeat("<tr>"))
    body = "".join(f"{begin}{_cells('td', row, classes)}</tr>\n" for row, begin in zip(rows, opened, strict=False))
    parts = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>"
    return f'<div class="wide"><table class="{kind}">\n{parts}\n</table></div>'


def _cells(tag: str, row: Sequence[object], classes: Sequence[str]) -> str:
    return "".join(f"<{tag}{kind}>{text(cell)}</{tag}>" for cell, kind in zip(row, classes, strict=True))


_ADVICE = {"invalid": ": do not use these numbers"}


def verdict(word: str | None, status: str | None, reasons: Iterable[object], notes: Iterable[object] = ()) -> str:
    """Return the box with the verdict.

    Args:
        notes: lines that change no grade.
    """
    known = word if word in ("valid", "suspect", "invalid") else "unknown"
    lines = "".join(f"<li>{text(reason)}</li>" for reason in reasons)
    lines += "".join(f'<li class="note">{text(note)}</li>' for note in notes)
    return (
        f'<div class="verdict {known}"><strong>Verdict: {text(word or "unknown")}{_ADVICE.get(known, "")}</strong>'
        f" (status: {text(status or 'unfinished')})<ul>{lines}</ul></div>"
    )


def disclosure(title: str, content: str) -> str:
    return f"<details><summary>{text(title)}</summary>\n{content}\n</details>"
