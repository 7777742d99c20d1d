"""The generated pages of the reference name all that a reader can call, and nothing of a docstring is lost on them."""

from __future__ import annotations

import importlib
import re

import longhaul
from scripts import reference_pages
from scripts.docstring_examples import fenced
from testbed.orchestrator.cli.main import _parser


def test_every_command_and_every_shown_argument_is_on_the_page_of_the_command_line() -> None:
    page = reference_pages.command_line()
    (commands,) = _parser()._subparsers._group_actions  # type: ignore[union-attr]
    choices = dict(commands.choices or {})
    assert re.findall(r"^## `(\w+)`$", page, re.MULTILINE) == list(choices) and len(choices) > 15
    sections = dict(zip(choices, page.split("\n## ")[1:], strict=True))
    assert "| `--steps" not in sections["run"] and "| `--quiet` | print one line" in sections["run"]
    for name, parser in choices.items():
        usage = parser.format_usage()  # argparse's own list of what is shown
        flags = set(re.findall(r"(--[a-z][\w-]*)", usage)) - {"--help"}
        assert flags <= set(re.findall(r"(--[a-z][\w-]*)", sections[name])), name


def test_every_row_has_two_cells() -> None:
    rows = [line for line in reference_pages.command_line().splitlines() if line.startswith("|")]
    assert len(rows) > 100
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 3, row


def test_every_name_of_the_package_is_on_the_page_of_the_python_api() -> None:
    named = re.findall(r"^::: longhaul\.(\w+)$", reference_pages.python_api(), re.MULTILINE)
    assert sorted(named) == sorted(name for name in longhaul.__all__ if name != "__version__")
    assert named[0] == "compare" and named[-1] == "RunError"


def test_what_plug_ins_derive_from_is_where_the_page_says() -> None:
    names = re.findall(r"^::: ([\w.]+)$", reference_pages.plug_in_api(), re.MULTILINE)
    assert len(names) == len(set(names)) > 8
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert getattr(importlib.import_module(module), attribute, None) or importlib.import_module(name)


def test_examples_are_fenced_to_the_next_empty_line_and_nothing_else_changes() -> None:
    text = "One.\n\n>>> a = 1\n>>> a\n1\n\nTwo.\n\n    >>> 2\n    2\n"
    lines = fenced(text).splitlines()
    assert [line for line in lines if "```" not in line] == text.splitlines()
    assert lines == [
        *("One.", "", "```pycon", ">>> a = 1", ">>> a", "1", "```", "", "Two.", ""),
        *("    ```pycon", "    >>> 2", "    2", "    ```"),
    ]
