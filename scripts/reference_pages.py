"""The pages of the site's reference that are made of declarations and docstrings while the site is built.

None is in the repository: the command line's page repeats what `--help` says, the Python pages what docstrings say.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of this tree, whatever is installed

import longhaul
from testbed.orchestrator.cli.main import _parser

PLUG_INS: Final[Mapping[str, tuple[str, ...]]] = {
    "Compressors": (
        "compressors.base.compressor.Compressor",
        "compressors.base.routes.Codec",
        "compressors.base.context.Traits",
        "compressors.base.context.Context",
        "compressors.parts.sparse.Sparsifier",
    ),
    "Strategies": ("testbed.worker.interfaces.strategy",),
    "Workloads": ("testbed.worker.interfaces.workload", "testbed.worker.interfaces.numbered_workload"),
    "Topologies": ("testbed.core.spec.topology",),
    "Your own script": ("testbed.worker.script.ddp_hook.ddp_hook",),
    "Events": ("testbed.core.record.events.note.Note",),
}
"""Classes, functions and modules that plug-ins and scripts use, by heading."""
_SPECIAL = re.compile(r"[\\*_<\[\]|#]")
"""Means something in Markdown; backticks, and what is between them, are meant."""


def command_line() -> str:
    """Return the page of all commands, each with its arguments as `--help` has them."""
    (commands,) = (action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    lines = ["# Command line", "", "`longhaul COMMAND`; every command has `--help`, which this page repeats.", ""]
    for name, parser in commands.choices.items():
        lines += [f"## `{name}`", "", _escaped(parser.description), "", *_table(parser)]
        lines += [_escaped(parser.epilog), ""] if parser.epilog else []
    return "\n".join(lines)


def _table(parser: argparse.ArgumentParser) -> Iterator[str]:
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest != "help"]
    if not shown:
        return
    yield from ("| Argument | Means |", "| --- | --- |")
    for action in shown:
        yield f"| {_names(action)} | {_meaning(action)} |"
    yield ""


def _names(action: argparse.Action) -> str:
    metavar = action.metavar or (None if action.nargs == 0 else "|".join(map(str, action.choices or ())))
    value = " ".join(metavar) if isinstance(metavar, tuple) else metavar or action.dest.upper()
    if not action.option_strings:
        return _code(value)
    return ", ".join(_code(name if action.nargs == 0 else f"{name} {value}") for name in action.option_strings)


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    return _escaped(text) or "-"


def _escaped(text: str | None) -> str:
    """Return a text of `--help` in one line that Markdown leaves as it is."""
    parts = re.split("(`[^`]*`)", " ".join((text or "").split()))
    return "".join(part if n % 2 else _SPECIAL.sub(r"\\\g<0>", part) for n, part in enumerate(parts))


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def python_api() -> str:
    """Return the page of the package `longhaul`, whose texts mkdocstrings takes from the docstrings."""
    lines = ["# Python API", "", "What `import longhaul` has. Examples: [results in Python](../python.md).", ""]
    for name in sorted((name for name in longhaul.__all__ if name[0] != "_"), key=_errors_last):
        lines += [f"::: longhaul.{name}", "    options: {heading_level: 2}", ""]
    return "\n".join(lines)


def _errors_last(name: str) -> tuple[bool, str]:
    return name.endswith("Error"), name.lower()


def plug_in_api() -> str:
    """Return the page of what plug-ins and scripts derive from and call."""
    lines = [
        "# API of plug-ins",
        "",
        "Classes to derive from. How to: [your first plug-in](../project/CONTRIBUTING.md),",
    ]
    lines += ["[other plug-ins](../plug-ins.md).", ""]
    for heading, names in PLUG_INS.items():
        lines += [f"## {heading}", ""]
        for name in names:
            lines += [f"::: {name}", "    options: {heading_level: 3}", ""]
    return "\n".join(lines)


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "reference/command-line.md": command_line,
    "reference/python-api.md": python_api,
    "reference/plug-in-api.md": plug_in_api,
}
"""Function that makes each page, by its place in the site."""


def write(folder: Path) -> None:
    """Write every page below `folder`."""
    for place, text in PAGES.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text())
