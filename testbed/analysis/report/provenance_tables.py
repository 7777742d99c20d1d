"""Sections of a run's page on where its numbers come from: `provenance.json`, and what was asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from testbed.analysis.record.record import Record
from testbed.analysis.style import html_page


def sections(record: Record) -> Iterator[str]:
    """Yield the one that there is."""
    table = html_page.table(("", "value"), _flat(record.provenance, depth=1))
    yield html_page.section("Provenance", table, *_details(record))


def _flat(data: dict[str, Any], depth: int) -> Iterator[tuple[str, object]]:
    """Rows of `data`, its objects opened `depth` levels deep."""
    for key, value in data.items():
        if isinstance(value, dict) and depth:
            yield from ((f"{key} {name}", item) for name, item in _flat(value, depth - 1))
        elif not isinstance(value, dict):
            yield key, value


def _details(record: Record) -> Iterator[str]:
    """Yield nested provenance that the table leaves out, and the spec, each to be opened."""
    deep = {key: value for key, value in record.provenance.items() if isinstance(value, dict)}
    for key, value in deep.items():
        yield html_page.disclosure(key, html_page.table(("", "value"), _flat(value, depth=4)))
    if record.spec is not None:
        yield html_page.disclosure("spec", html_page.table(("", "value"), _flat(record.spec.to_json(), depth=2)))
