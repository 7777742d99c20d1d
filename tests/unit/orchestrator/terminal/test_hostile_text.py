"""No text of a record steers the terminal on which it is shown, as a table, a result's line or a fault."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from testbed.core.record.run_row import NAMES
from testbed.orchestrator.run_store import listing
from testbed.orchestrator.terminal.summary_table import final_table
from testbed.orchestrator.terminal.terminal import Terminal, say

HOSTILE = [
    "\x1b[2Jevil",
    "\x9b2Jevil",
    "evil\x07\x08",
    "\N{RIGHT-TO-LEFT OVERRIDE}evil",
    "evil\nlonghaul: all is well",
    "[bold red]evil[/]",
    "[/nothing]",
    ":skull:",
]


def printed(picture: Table | Text | object) -> str:
    out = io.StringIO()
    Terminal(file=out, force_terminal=False).print(picture)
    return out.getvalue()


def is_plain(text: str) -> bool:
    return all(one.isprintable() or one == "\n" for one in text)


@pytest.mark.parametrize("text", HOSTILE)
def test_headings_cells_captions_and_texts_are_shown_as_they_are(text: str) -> None:
    table = Table(title=text, caption=text)
    table.add_column(text)
    table.add_row(text)
    for picture in (table, Text(text), text):
        shown = printed(picture)
        assert (is_plain(shown) and "evil" in shown) or "nothing" in shown or ":skull:" in shown


@pytest.mark.parametrize("text", HOSTILE)
def test_a_fault_is_one_line_whatever_it_names(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(f"run {text}: cannot be read")
    said = capsys.readouterr().err
    assert said.startswith("longhaul: run ") and said.count("\n") == 1 and is_plain(said)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_list_and_a_summary_of_hostile_words(text: str) -> None:
    row = dict.fromkeys(NAMES, text) | {"workers": 4, "hooks": None}
    assert is_plain(printed(listing.table([row, {**row, "seed": 1}])))
    summary = dict.fromkeys(("topo", "strategy", "compressor", "kind", "status", "verdict"), text)
    link = {"name": text, "from": text, "to": text, "wan": True, "changes": 1}
    told = summary | {"metric": {"name": text}, "links": [link], "reasons": [text], "unknowns": [text]}
    lines = printed(final_table(told, Path("runs/1"))).splitlines()
    assert is_plain("\n".join(lines)) and not any(line.startswith("longhaul:") for line in lines)
