"""Pieces of a self-contained HTML page. Whatever came from a record is escaped here and nowhere else."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

_CSS = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; max-width: 1080px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.4em; overflow-wrap: anywhere; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 3px 10px 3px 0; border-bottom: 1px solid #ddd; vertical-align: top; }
td:first-child { overflow-wrap: anywhere; min-width: 9em; } .wide { overflow-x: auto; }
.verdict { border-left: 8px solid; padding: .4em 1em; background: #f6f6f6; }
.valid { border-color: #009E73; } .suspect { border-color: #E69F00; } .invalid, .unknown { border-color: #D55E00; }
svg { max-width: 100%; height: auto; } .note { color: #555; font-size: 13px; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Even if a record's text slipped through unescaped, no browser would run it or fetch anything for it."""


def text(value: object) -> str:
    """`value` as escaped text; missing is a dash."""
    return "-" if value is None else html.escape(str(value))


def document(title: str, *sections: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{text(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n<h1>{text(title)}</h1>\n"
        + "\n".join(sections)
        + "\n</body>\n</html>\n"
    )


def section(title: str, *content: str) -> str:
    return f"<h2>{text(title)}</h2>\n" + "\n".join(content)


def note(words: str) -> str:
    return f'<p class="note">{text(words)}</p>'


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{text(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>'


def verdict(word: str | None, status: str | None, reasons: Iterable[object], unknowns: Iterable[object] = ()) -> str:
    known = word if word in ("valid", "suspect", "invalid") else "unknown"
    lines = "".join(f"<li>{text(reason)}</li>" for reason in reasons)
    lines += "".join(f'<li class="note">not known: {text(unknown)}</li>' for unknown in unknowns)
    return (
        f'<div class="verdict {known}"><strong>Verdict: {text(word or "unknown")}</strong>'
        f" (status: {text(status or 'unfinished')})<ul>{lines}</ul></div>"
    )


def disclosure(title: str, content: str) -> str:
    return f"<details><summary>{text(title)}</summary>\n{content}\n</details>"
