"""Lists of parameters for pages: one line each, and those that several classes share once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from testbed.core.declaration import OPTIONAL, REQUIRED, Parameter

_MAX_SHOWN = 60
_MAX_TEXT = 20
"""Characters of a default: of objects, and of texts, such as the source of a topology's figures."""
_MAX_CHOICES = 12
"""Choices that are all named."""
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
    """Default as it is written after the name; empty if there is none."""
    values: str
    """Type and range; empty if the default says as much."""
    text: str

    @property
    def sentence(self) -> str:
        """The first sentence of the text; `longhaul show` and the page of the feature have all of it."""
        return re.split(r"(?<=\.)\s+(?=\S)", self.text, maxsplit=1)[0]

    @property
    def meaning(self) -> tuple[str, str, str]:
        """Everything but the default, which classes that share a parameter may choose."""
        return self.name, self.values, self.sentence

    @property
    def whole(self) -> str:
        """The line with all of the text."""
        return f"{self._head}: {self.text}"

    @property
    def _head(self) -> str:
        return f"- `{self.name}{self.default}`{f' ({self.values})' if self.values else ''}"

    def __str__(self) -> str:
        return f"{self._head}: {self.sentence}"


Shared = Mapping[tuple[str, str, str], Line]
"""Parameters that several classes have, by their meanings."""


def lines(parameters: Iterable[Parameter], values: Mapping[str, Any]) -> list[Line]:
    """Return the lines of some parameters.

    Args:
        values: Values of the YAML file, for parameters without a default of their own.
    """
    return [_line(one, values.get(one.name, one.default)) for one in parameters]


def _line(one: Parameter, given: Any) -> Line:
    default = given if one.default in (REQUIRED, None) else one.default
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
    most = _MAX_TEXT if isinstance(value, str) else _MAX_SHOWN
    return text if len(text) <= most else text[: most - 1] + "…"


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


def shared_lines(several: Iterable[Sequence[Line]]) -> Shared:
    """Return the parameters that more than one of several classes has, one for each name."""
    every = [line for one in several for line in one]
    counts = Counter(line.meaning for line in every)
    defaults = Counter((line.meaning, line.default) for line in every)
    found: dict[str, Line] = {}
    for line in sorted(every, key=lambda one: (-counts[one.meaning], -defaults[one.meaning, one.default])):
        if counts[line.meaning] > 1:
            found.setdefault(line.name, line)
    return {found[name].meaning: found[name] for name in sorted(found)}


def listed(found: Sequence[Line], shared: Shared) -> list[str]:
    """Return a line for each parameter of a class, and one with the names of all that are in `shared`."""
    own = [str(line) for line in found if line.meaning not in shared]
    several = [line for line in found if line.meaning in shared]
    same = [line for line in several if line.default == shared[line.meaning].default]
    names = [f"`{line.name}`" for line in same]
    names += [f"`{line.name}{line.default}`" for line in several if line not in same]
    return [*own, f"- Shared: {', '.join(names)}."] if names else own
