"""A YAML file as it was read: scalars as written, each with its line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from testbed.orchestrator.config.user_files.scalars import value_of

_STEP = re.compile(r"\.([^.\[\]=: ]+)|\[([0-9]{1,6})\]")
_ANY = "*"


@dataclass(frozen=True)
class Scalar:
    """A value that holds no others."""

    text: str
    line: int
    is_plain: bool
    """True if it stands without quotes, so that the schema says what it is."""


@dataclass(frozen=True)
class Sequence:
    """A list of values."""

    items: list[Node]
    line: int


@dataclass(frozen=True)
class Mapping:
    """Values by key."""

    values: dict[str, Node]
    line: int
    lines: dict[str, int] = field(default_factory=dict)
    """Line of each key."""


Node = Scalar | Sequence | Mapping


@dataclass(frozen=True)
class Document:
    """The content of one file."""

    where: str
    """Beginning of its faults, such as `topo=net.yaml`."""
    root: Node

    def plain(self, texts: Collection[str] = ()) -> Any:
        """Return the content as dict, list, str, int, float, bool and None.

        Args:
            texts: Patterns of places whose scalars are text as written, such as `links.*.a`; `*` is any key or any
                item of a list.
        """
        return _plain(self.root, [pattern.split(".") for pattern in texts])

    def keys(self) -> list[str]:
        """Return the keys of the file; none if it is no mapping."""
        return list(self.root.values) if isinstance(self.root, Mapping) else []

    def line(self, *path: str | int) -> int | None:
        """Return the line of a value, or of the deepest value on the way to it; None if the first step leads nowhere.

        Args:
            path: Keys, and positions in lists from 0.
        """
        return self._follow(path)[1]

    def at(self, *path: str | int) -> str:
        """Return the beginning of a fault of a value: the file and its line."""
        return f"{self.where}, line {self.line(*path) or self.root.line}"

    def located(self, faults: Iterable[str], key: str) -> Iterator[str]:
        """Yield `faults`, those of a value of this file with its line.

        Args:
            key: First word of the faults' paths, such as `topo` in `topo.links[0].rtt: must ...`.
        """
        for fault in faults:
            path = path_in(fault, key)
            node, line = self._follow(path)
            if not isinstance(node, Scalar) and (line is not None or not path):
                line = _line_of_name(node, fault) or line
            yield fault if line is None or fault.startswith(self.where) else f"{self.where}, line {line}: {fault}"

    def _follow(self, path: Iterable[str | int]) -> tuple[Node, int | None]:
        """Return the deepest node on a path, and its line, or None where the first step leads nowhere."""
        node, line = self.root, None
        for step in path:
            if isinstance(node, Mapping) and str(step) in node.values:
                line, node = node.lines[str(step)], node.values[str(step)]
            elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
                node = node.items[step]
                line = node.line
            else:
                break
        return node, line


def path_in(fault: str, key: str) -> list[str | int]:
    """Return the path that a fault begins with.

    >>> path_in("topo.links[0].rtt: must be given", "topo")
    ['links', 0, 'rtt']
    """
    path: list[str | int] = []
    place = len(key) if fault.startswith(key) else len(fault)
    while match := _STEP.match(fault, place):
        path.append(match[1] if match[1] is not None else int(match[2]))
        place = match.end()
    return path


def _plain(node: Node, patterns: list[list[str]]) -> Any:
    if isinstance(node, Scalar):
        return node.text if [] in patterns or not node.is_plain else value_of(node.text)
    if isinstance(node, Sequence):
        within = _below(patterns, _ANY)
        return [_plain(item, within) for item in node.items]
    return {key: _plain(value, _below(patterns, key)) for key, value in node.values.items()}


def _below(patterns: list[list[str]], key: str) -> list[list[str]]:
    return [pattern[1:] for pattern in patterns if pattern and pattern[0] in (key, _ANY)]


def _texts(node: Node) -> Iterator[tuple[str, int]]:
    """Yield every scalar and key with its line."""
    if isinstance(node, Scalar):
        yield node.text, node.line
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _texts(item)
    else:
        for key, value in node.values.items():
            yield key, node.lines[key]
            yield from _texts(value)


def _line_of_name(node: Node, fault: str) -> int | None:
    """Return the line of the first scalar or key within a node that a fault quotes, or None."""
    quoted = re.findall(r"'([^']*)'", fault)
    lines = dict(reversed(list(_texts(node)))) if quoted else {}  # the first of each
    return next((lines[text] for text in quoted if text in lines), None)
