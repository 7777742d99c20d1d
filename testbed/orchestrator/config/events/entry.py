"""One entry of a list of events: its fields with their units; what cannot be read is a fault, and reading goes on."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from testbed.core.spec.schedule import Change
from testbed.core.spec.topology import Link, Topology
from testbed.core.units import parse_time_s
from testbed.core.user_files.tables import EPOCH, MAX_TIME_S
from testbed.orchestrator.config.grammar.overrides import unknown

T = TypeVar("T")
_MAX_CAUSE_CHARACTERS = 200


class Entry:
    """Fields are taken by name. A field at fault gives a stand-in, so that the others are read too.

    Args:
        where: Returns the beginning of the faults of a key, such as "events=wan.yaml, line 7, entry 2 (flap)".
        word: the one that says what happens; its value says where.
        folder: that paths are relative to.
    """

    def __init__(
        self, where: Callable[[str], str], word: str, values: Mapping[str, Any], folder: Path, topology: Topology
    ) -> None:
        self._where = where
        self.where = where("")
        self.word = word
        self.values = values
        self.folder = folder
        self.topology = topology
        self.faults: list[str] = []
        self.places: Mapping[float, tuple[Path, int]] = {}
        """File and line of each row of a trace, by the moment of its change."""
        self.at_s = self.take("at", parse_time_s, 0.0)
        if self.at_s >= MAX_TIME_S:
            self.fault(f"at: {self.at_s:g} s {EPOCH}; times count from step 1 of the run")

    @functools.cached_property
    def cause(self) -> str:
        """What the user wrote, in one line."""
        rest = [f"{key} {_spoken(value)}" for key, value in self.values.items() if key not in ("at", self.word)]
        return ", ".join([f"{self.word} {_spoken(self.values[self.word])}", *rest])[:_MAX_CAUSE_CHARACTERS]

    def fault(self, message: str) -> None:
        key = re.match(r"\w*", message)
        self.faults.append(f"{self._where(key[0] if key else '')}: {message}")

    def take(self, key: str, parse: Callable[[Any], T], stand_in: T) -> T:
        """A field that must be there."""
        if self.values.get(key) is None:
            self.fault(f"{key} must be given")
            return stand_in
        try:
            return parse(self.values[key])
        except ValueError as error:
            self.fault(f"{key}: {error}")
            return stand_in

    def length_s(self, key: str) -> float:
        """A time above 0 that must be there."""
        found = self.take(key, parse_time_s, 1.0)
        if found > 0:
            return found
        self.fault(f"{key}: must be above 0")
        return 1.0

    def length_or_none_s(self, key: str) -> float | None:
        return self.length_s(key) if key in self.values else None

    def truth(self, key: str, otherwise: bool) -> bool:
        value = self.values.get(key, otherwise)
        if isinstance(value, bool):
            return value
        self.fault(f"{key}: must be true or false, found {value!r}")
        return otherwise

    def names(self, value: Any, known: Sequence[str], what: str) -> list[str]:
        """One name or a list of them."""
        found = value if isinstance(value, list) else [value]
        if not found:
            self.fault(f"{self.word}: names no {what}")
        good = []
        for name in found:
            if not isinstance(name, str):
                self.fault(f"{self.word}: {name!r} is no {what}'s name; put a name such as 'no' or '1' in quotes")
            elif name not in known:
                self.fault(unknown(f"{self.word}: {name}", name, known, what))
            elif name in good:
                self.fault(f"{self.word}: {name} is named twice")
            else:
                good.append(name)
        return good

    def links(self) -> list[Link]:
        """WAN links by name, or all; with `from` only those that begin there."""
        value = self.values[self.word]
        by_name = {link.name: link for link in self.topology.wan_links}
        if value != "all":
            return [by_name[name] for name in self.names(value, list(by_name), "WAN link")]
        start = self.values.get("from")
        links = [link for link in by_name.values() if start is None or start in (link.a, link.b)]
        if not by_name:
            self.fault(f"{self.word}: topology {self.topology.name} has no WAN link")
        elif not links:
            self.fault(f"from: no WAN link begins at {start!r}; known: {', '.join(self.topology.regions)}")
        return links

    def sources(self, link: Link) -> list[str]:
        """Where the directions begin that are meant."""
        start = self.values.get("from")
        if start is None:
            return [link.a, link.b]
        if start not in (link.a, link.b):
            self.fault(f"from: link {link.name} begins at {link.a} or {link.b}, not {start!r}")
            return []
        return [start]

    def set(self, t_s: float, link: Link, by_source: Mapping[str, dict[str, float]], cause: str = "") -> list[Change]:
        """One change for both directions where they get the same values."""
        starts = list(by_source)
        if len(starts) == 2 and by_source[starts[0]] == by_source[starts[1]]:
            return [self._set(t_s, link, None, by_source[starts[0]], cause)]
        return [self._set(t_s, link, start, by_source[start], cause) for start in starts]

    def _set(self, t_s: float, link: Link, source: str | None, values: dict[str, float], cause: str) -> Change:
        return Change(
            t_s=moment(t_s), kind="set", link=link.name, source=source, values=dict(values), cause=cause or self.cause
        )


def moment(t_s: float) -> float:
    """To the nanosecond: sums of decimal fractions shall be equal where a reader finds them equal."""
    return round(t_s, 9)


def _spoken(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_spoken(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
