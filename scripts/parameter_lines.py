"""Lists of parameters for pages and for their CSV file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from testbed.core.declaration import OPTIONAL, REQUIRED, Parameter

_MAX_SHOWN, _MAX_SHORT = 60, 30
"""Characters of a default in a list with meanings, and in one without."""
_MAX_CHOICES = 12
"""Choices that are all named."""
_COLUMNS = ("kind", "name", "key", "default", "values", "meaning")
_SHORT = {
    "whole number": "int",
    "true or false": "true/false",
    "true, false, or a break": "true/false or break",
    "parameters by their names": "parameters",
    " as text with a unit": "",
}
"""Words of kinds, and the fewer ones of a page."""


@dataclass(frozen=True)
class Line:
    """One parameter as a page lists it."""

    name: str
    default: str
    """Default as it is written after the name, with its `=`; empty if there is none."""
    values: str
    """Type and range; empty if the default says as much."""
    text: str

    @property
    def whole(self) -> str:
        """The line with all of the text."""
        shown = self.default if len(self.default) <= _MAX_SHOWN else self.default[:_MAX_SHOWN] + "…"
        return f"- `{self.name}{shown}`{f' ({self.values})' if self.values else ''}: {self.text}"

    @property
    def short(self) -> str:
        """The key with its default, which is left out if it is long."""
        return short(self.name, self.default) + (" (required)" if self.values.startswith("required") else "")

    def row(self, kind: str, name: str) -> tuple[str, ...]:
        """Return the row of the CSV file for the plug-in or class `name`."""
        return kind, name, self.name, self.default.removeprefix("="), self.values, self.text


def short(name: str, default: str) -> str:
    """Return a key with its default, which is left out if it is long."""
    return f"`{name}{default if len(default) <= _MAX_SHORT else '=…'}`"


def csv_text(rows: Iterable[tuple[str, ...]]) -> str:
    """Return the CSV file with some rows of parameters."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_COLUMNS, *rows])
    return text.getvalue()


def lines(parameters: Iterable[Parameter], values: Mapping[str, Any]) -> list[Line]:
    """Return the lines of some parameters.

    Args:
        values: Values of a YAML file, which come before defaults of the class.
    """
    return [_line(one, values.get(one.name, one.default)) for one in parameters]


def _line(one: Parameter, given: Any) -> Line:
    default = one.default if given == one.default else given
    words = values_words(one.type_text, one.values_text)
    if default is OPTIONAL:
        return Line(one.name, "", words, one.sentence)
    if is_to_be_given(one, default):
        return Line(one.name, "", f"required, {words}", one.sentence)
    shown = words.removesuffix(", null") if default is None else words
    if isinstance(default, bool) and shown == _SHORT["true or false"]:
        shown = ""
    if isinstance(default, int):
        shown = shown.removeprefix("int ")
    return Line(one.name, f"={written(default)}", shown, one.sentence)


def is_to_be_given(parameter: Parameter, value: Any) -> bool:
    """Return True for the place of a value that the user has to give."""
    return value in ("???", REQUIRED) or (value is None and parameter.default is REQUIRED and not parameter.null)


def written(value: Any) -> str:
    """Return a default as a user writes it."""
    given = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump(given, default_flow_style=True, width=10_000).splitlines()[0]
    return text


def values_words(kind: str, values: str) -> str:
    """Return the type and the range of a parameter in as few words as say them."""
    kind = re.sub(r",? given as {_target_: …}", "", kind)
    for long, short in _SHORT.items():
        kind = kind.replace(long, short)
    kind, *unit = re.sub(r"^(a|an|the) ", "", kind).split(", ", 1)
    null = ", null" if values.endswith("null") else ""
    values = values.removesuffix("null").removesuffix(", or ").removeprefix("in ")
    values = re.sub(r"at least (\S+) and at most (\S+)", r"\1–\2", values)
    values = re.sub(r"(above|at least) (\S+) and (below|at most) (\S+)", _interval, values)
    values = re.sub(r"^at least ", "≥", re.sub(r"^above ", ">", values))
    values = re.sub(r"([\[(]\S+), (\S+[\])])", r"\1,\2", values)
    choices = values.split(", ") if kind == "choice" else []
    if len(choices) > _MAX_CHOICES:
        choices = [*choices[:3], "…", *choices[-2:]]
    values = "|".join(choices).replace("|or ", " or ") or values
    shown = {"number": "", "choice": ""}.get(kind, kind) if values else kind
    return " ".join(filter(None, (shown, values, *unit))) + null


def _interval(match: re.Match[str]) -> str:
    left, right = "(" if match[1] == "above" else "[", ")" if match[3] == "below" else "]"
    return f"{left}{match[2]},{match[4]}{right}"
