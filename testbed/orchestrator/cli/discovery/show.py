"""`longhaul show`: all plug-ins of a kind in a table, or everything about one."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from rich import box
from rich.table import Table

from testbed.core.errors import EXIT_COMPLETED, InputError
from testbed.core.files import printable
from testbed.core.spec.redirects import PACKAGES
from testbed.orchestrator.cli.discovery.catalogue import description, descriptions
from testbed.orchestrator.cli.discovery.kinds import KINDS
from testbed.orchestrator.cli.discovery.words import kind_words, needs
from testbed.orchestrator.config.config import compose, names
from testbed.orchestrator.config.grammar.overrides import unknown
from testbed.orchestrator.export.topology_text import drawing
from testbed.orchestrator.terminal.terminal import show, tell

_WIDTH = 110
_MAX_NAMES = 12
_MAX_DEFAULT = 60


def show_plugins(kind: str, name: str | None, *, as_json: bool) -> int:
    """Print what is asked for, and return the exit status.

    Args:
        kind: A key of `KINDS`, one of its values, or GROUP=NAME.
        name: Name of a plug-in, or path of a YAML file; None: all of the kind.

    Raises:
        InputError: There is no such kind or plug-in, or a file of the user's has faults; every fault at once.
    """
    group, name = _asked(kind, name)
    if name is None:
        found = descriptions(group)
        if as_json:
            tell(json.dumps([_as_data(group, one) for one in found.values()], indent=2))
        else:
            show(_table(group, found))
        return EXIT_COMPLETED
    one = _as_data(group, description(group, name))
    if as_json:
        tell(json.dumps(one, indent=2))
    else:
        _show_one(group, one)
    return EXIT_COMPLETED


def _asked(kind: str, name: str | None) -> tuple[str, str | None]:
    """Return group and name; the kind may be spelt as a run's key, also together with the name."""
    head, has_name, value = kind.partition("=")
    if has_name and name is None:
        kind, name = head, value
    singular = {"topology": "topo", **{group: group for group in KINDS.values()}}
    if kind not in (known := {**singular, **KINDS}):
        of = next((several for several, group in KINDS.items() if kind in names(group)), None)
        raise InputError(unknown(f"show {kind}", kind, KINDS, "kind", f"show {of} {kind}" if of else None))
    return known[kind], name


def _as_data(group: str, found: dict[str, Any]) -> dict[str, Any]:
    return {"group": group, **found, "example": _example(group, found)}


def _example(group: str, found: Mapping[str, Any]) -> str:
    """Return a command with the plug-in; `...` stands for values that depend on the user."""
    program = found["traits"].get("program")
    if program == "hand":
        return "sudo .venv/bin/longhaul up topo=us3"
    words = [f"{group}={found['name']}"]
    words += [f"{group}.{one['name']}=..." for one in found["parameters"] if one["required"]]
    words += [f"{one}={partner}" for one, partner in found["partners"].items()]
    if lengths := found["traits"].get("lengths"):
        model, batch_size = next(iter(lengths.items()))
        words += [f"workload.model={model}", f"batch_size={batch_size}"]
    words += [word for fault in found["refused"] for word in re.findall(r"use (workers=\d+)", fault)]
    if group == "topo" and (module := found["target"].partition(".")[0]) not in PACKAGES:
        words.append(f"--trust {Path(found['name']).with_name(f'{module}.py')}")
    words += ["workload.script=train.py -- --epochs 2"] if program == "script" else []
    return " ".join(["sudo .venv/bin/longhaul run", *words])


def _table(group: str, found: Mapping[str, Mapping[str, Any]]) -> Table:
    view = Table(box=box.SIMPLE_HEAD)
    for heading in ("name", "what it is", "kind", "needs"):
        view.add_column(heading, overflow="fold", no_wrap=heading == "name")
    for name, one in found.items():
        view.add_row(name, one["what"], kind_words(group, one), needs(group, one))
    return view


def _show_one(group: str, found: dict[str, Any]) -> None:
    tell(_plain(f"{group}={found['name']}: {found['what']}"))
    if words := kind_words(group, found):
        tell(f"  {words}")
    if needed := needs(group, found):
        tell(f"  needs {needed}")
    if run := found.get("run"):
        tell(f"  usual length: {' '.join(f'{key}={value}' for key, value in run.items() if key != 'strategy')}")
        for name, suited in (run.get("strategy") or {}).items():
            values = (f"strategy.{key}={_written(value)}" for key, value in suited.items())
            tell(f"  usual with strategy={name}: {' '.join(values)}")
    for paragraph in found["about"].split("\n\n") if found["about"] else ():
        tell("\n" + textwrap.fill(_plain(paragraph), _WIDTH))
    if group == "topo":
        tell("\n" + drawing(compose([f"topo={found['name']}"]).topology))
    tell(f"\nParameters ({group}.KEY=VALUE){'' if found['parameters'] else ': none'}")
    if found["parameters"]:
        show(_parameters(found["parameters"]))
    for line in _rest(found):
        tell(line)


def _parameters(parameters: list[dict[str, Any]]) -> Table:
    view = Table(box=box.SIMPLE_HEAD)
    for heading in ("key", "default", "type", "values", "meaning"):
        view.add_column(heading, overflow="fold", no_wrap=heading == "key")
    for one in parameters:
        is_absent = one["default"] is None and not one["null"]
        default = "required" if one["required"] else "none" if is_absent else _written(one["default"])
        view.add_row(one["name"], default, one["type"], one["values"], one["meaning"])
    return view


def _written(value: Any) -> str:
    text = str(yaml.safe_dump(value, default_flow_style=True, width=10_000)).splitlines()[0]
    return textwrap.shorten(text, _MAX_DEFAULT, placeholder=" …")


def _plain(text: str) -> str:
    return printable(" ".join(text.split()))


def _rest(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines below the parameters."""
    if found["capabilities"]:
        yield "\nCapabilities"
        yield from (f"  {name}: {meaning}" for name, meaning in found["capabilities"].items())
    if found["excludes"]:
        yield "\nNot together with"
    for one in found["excludes"]:
        named = ", ".join(one["names"][:_MAX_NAMES])
        more = f" and {len(one['names']) - _MAX_NAMES} more" if len(one["names"]) > _MAX_NAMES else ""
        yield textwrap.fill(
            f"{one['group']}={named}{more}: {one['because']}",
            _WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
        )
    if found["refused"]:
        yield "\nOn wan1g with 4 workers"
    yield from (textwrap.fill(one, _WIDTH, initial_indent="  ", subsequent_indent="    ") for one in found["refused"])
    if found["source"]:
        yield "\nSource"
        yield textwrap.fill(_plain(found["source"]), _WIDTH, initial_indent="  ", subsequent_indent="  ")
    yield f"\nClass: {found['target']}"
    yield f"Example: {found['example']}"
