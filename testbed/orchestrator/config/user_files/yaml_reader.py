"""YAML 1.2 to a `Document`, by the events of ruamel.yaml: bounded, and with nothing that YAML leaves to chance.

Refused: a key that is there twice, a second document, tags, other versions of YAML, merge keys, and what is too large,
too deep, or too much once its aliases are followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from testbed.core.errors import InputError
from testbed.core.user_files.text import code_of, control_character, listed, read_user_text, shown
from testbed.orchestrator.config.user_files.document import Document, Mapping, Node, Scalar, Sequence
from testbed.orchestrator.config.user_files.scalars import fault_of

MAX_BYTES = 300_000
MAX_DEPTH = 20
MAX_VALUES = 30_000
"""Number of scalars, lists and mappings, each as often as aliases repeat it: about a second of reading."""
MAX_NAME = 22
"""Characters of a plug-in's name: three of them and the hash must fit a run id."""
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_NAME - 1}}}")
_MAX_FAULTS = 20
_TEXT_TAGS = ("!", "!!str")
_VERSION = (1, 2)


class _Refused(Exception):
    """A fault at a line."""

    def __init__(self, line: int, fault: str) -> None:
        super().__init__(fault)
        self.line = line


def is_path(name: str) -> bool:
    """Return True for the path of a YAML file, which no name of ours is."""
    return name.endswith((".yaml", ".yml"))


def name_faults(path: Path, where: str, what: str) -> Iterator[str]:
    """Yield a fault if an existing file cannot lend its name to what it describes.

    Args:
        where: Beginning of the fault, such as `topo=net.yaml`.
        what: What takes the name, such as "topology".
    """
    if path.is_file() and not _NAME.fullmatch(path.stem):
        allowed = f"{MAX_NAME} letters, digits, - and _ at most, the first a letter or a digit"
        said = f"the {what} is called as its file, {shown(path.stem)}, and a name must be {allowed}"
        yield f"{where}: {said}; rename the file"


def read_yaml(path: Path, where: str = "") -> Document:
    """Return the content of a user's YAML file.

    Args:
        where: Beginning of its faults, such as `topo=net.yaml`; empty: the path.

    Raises:
        InputError: It cannot be read, or is refused; one line a fault, with its line.
    """
    where = where or str(path)
    return parse_yaml(read_user_text(path, MAX_BYTES, where), where)


def parse_yaml(text: str, where: str) -> Document:
    """Return the content of a YAML text.

    Raises:
        InputError: It is refused; one line a fault, with its line.
    """
    composer = _Composer(text)
    try:
        root = composer.document()
    except _Refused as error:
        composer.faults.append((error.line, str(error)))
    except MarkedYAMLError as error:
        composer.faults.append(_syntax_fault(error, text, composer.begun))
    except (YAMLError, ValueError, OverflowError) as error:  # such as an escape of no character
        composer.faults.append((composer.line, f"is not YAML: {shown(error)}; correct it, or put the text in quotes"))
    if composer.faults:
        lines = list(dict.fromkeys(f"{where}, line {line}: {fault}" for line, fault in composer.faults))
        raise InputError(*listed(lines, where, _MAX_FAULTS))
    return Document(where, root)


def _syntax_fault(error: MarkedYAMLError, text: str, begun: list[int]) -> tuple[int, str]:
    problem, context = str(error.problem or error.context or "cannot be read"), str(error.context or "")
    mark = error.problem_mark or error.context_mark
    if "quoted scalar" in context and "unexpected" in problem and error.context_mark:
        return error.context_mark.line + 1, "is not YAML: a quote is not closed; close it"
    if begun and mark and mark.index >= len(text.rstrip()) and "flow" in context:
        return begun[-1], "is not YAML: a bracket is not closed; close it"
    line = mark.line + 1 if mark else 1
    said = " ".join(problem.split())
    return line, f"is not YAML: {said}; correct it, or put text with special characters in quotes"


class _Composer:
    """Builds the nodes of one text from its events."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = YAML(typ="safe", pure=True).parse(text)
        self._anchors: dict[str, tuple[Node, int] | None] = {}
        """Each anchor's node with its number of values; None while the node is being read."""
        self._values = 0
        self.begun: list[int] = []
        """Lines of the lists and mappings that have not ended."""
        self.line = 1
        self.faults: list[tuple[int, str]] = []

    def document(self) -> Node:
        """Return the root.

        Raises:
            _Refused: Reading cannot go on.
            YAMLError: The text is not YAML.
        """
        root: Node | None = None
        for event in self._events:
            self._mark(event)
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    raise _Refused(self.line, "a second document begins; give one document a file")
                if event.version and tuple(event.version) != _VERSION:
                    raise _Refused(self.line, "asks for another version of YAML; it is read as 1.2, so remove the line")
            elif isinstance(event, ScalarEvent | AliasEvent | SequenceStartEvent | MappingStartEvent):
                root = self._node(event, 1)
        return root or Scalar("", 1, True)

    def _next(self) -> Any:
        return self._mark(next(self._events))

    def _mark(self, event: Any) -> Any:
        self.line = event.start_mark.line + 1
        return event

    def _node(self, event: Any, depth: int, *, is_key: bool = False) -> Node:
        if isinstance(event, AliasEvent):
            return self._alias(event)
        self._count(1)
        before, line = self._values, self.line
        if depth > MAX_DEPTH:
            raise _Refused(line, f"is nested more than {MAX_DEPTH} deep; make it flatter")
        if event.anchor:
            self._anchors[event.anchor] = None
        if isinstance(event, ScalarEvent):
            node: Node = self._scalar(event, is_key=is_key)
        else:
            self._refuse_tag(event, "list or mapping")
            self.begun.append(line)
            node = self._sequence(depth) if isinstance(event, SequenceStartEvent) else self._mapping(depth)
            self.begun.pop()
        if event.anchor:
            self._anchors[event.anchor] = node, self._values - before + 1
        return node

    def _count(self, values: int) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise _Refused(self.line, f"has more than {MAX_VALUES:,} values, aliases followed; shorten it")

    def _alias(self, event: Any) -> Node:
        found = self._anchors.get(event.anchor)
        if found is None:
            why = "is inside its own anchor" if event.anchor in self._anchors else "has no anchor above it"
            raise _Refused(self.line, f"the alias {shown('*' + event.anchor)} {why}; put text with * in quotes")
        node, values = found
        self._count(values)
        return node

    def _scalar(self, event: Any, *, is_key: bool) -> Scalar:
        line = self.line
        if found := control_character(event.value):
            self.faults.append((line, f"holds the control character {code_of(found)}; remove it"))
        is_plain = event.style is None and not self._refuse_tag(event, "text")
        if is_plain and not is_key and (fault := fault_of(event.value)):
            self.faults.append((line, fault))
            return Scalar("0", line, True)
        return Scalar(event.value, line, is_plain)

    def _refuse_tag(self, event: Any, what: str) -> bool:
        """Return True if the tag makes a scalar text; a tag of another meaning is a fault."""
        if not event.tag:
            return False
        tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
        if not isinstance(event, ScalarEvent) or tag not in _TEXT_TAGS:
            self.faults.append((self.line, f"the tag {shown(tag)} of a {what} has no meaning here; remove it"))
        return True

    def _sequence(self, depth: int) -> Sequence:
        line, items = self.line, []
        while not isinstance(event := self._next(), SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return Sequence(items, line)

    def _mapping(self, depth: int) -> Mapping:
        found = Mapping({}, self.line)
        while not isinstance(event := self._next(), MappingEndEvent):
            key, line = self._key(event, depth), self.line
            value = self._node(self._next(), depth + 1)
            if key in found.values:
                first = found.lines[key]
                self.faults.append((line, f"the key {shown(key)} is there twice, first in line {first}; give it once"))
                continue
            found.values[key], found.lines[key] = value, line
        return found

    def _key(self, event: Any, depth: int) -> str:
        line = self.line
        node = self._node(event, depth + 1, is_key=True)
        if not isinstance(node, Scalar):
            raise _Refused(line, "a key is a list or a mapping; put text with braces or brackets in quotes")
        if node.text == "<<" and node.is_plain:
            raise _Refused(line, "merge keys (<<) are not YAML 1.2; write the values out")
        return node.text
