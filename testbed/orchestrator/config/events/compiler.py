"""From `events=` to the changes of a spec: read, compiled, checked against the topology; every fault at once."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError, raise_input_faults
from testbed.core.spec.schedule import Change
from testbed.core.spec.topology import Topology
from testbed.core.user_files.text import listed as several
from testbed.core.user_files.text import shown
from testbed.orchestrator.config.events import outages
from testbed.orchestrator.config.events.entry import Entry
from testbed.orchestrator.config.events.outages import Heal, Outage
from testbed.orchestrator.config.events.profiles import ProfileFaults
from testbed.orchestrator.config.events.vocabulary import MAX_CHANGES, WORDS
from testbed.orchestrator.config.grammar.overrides import unknown
from testbed.orchestrator.config.user_files.document import Document
from testbed.orchestrator.config.user_files.yaml_reader import read_yaml

ELASTIC_WORKLOAD = "script"
"""The one workload whose workers may be asked to leave: it brings its own way of coping with it."""


_TEXTS = tuple(f"*.{key}{items}" for key in (*WORDS, "from", "file", "format") for items in ("", ".*", ".*.*"))
"""Where a list of events has names, which are text as written."""
_MAX_FAULTS = 50


@dataclass(frozen=True)
class Listed:
    """A list of events as it was read."""

    name: str
    """For faults."""
    folder: Path
    """That paths in it are relative to."""
    entries: list[Any]
    document: Document | None = None
    """File that it comes from."""

    def where(self, index: int, word: str = "", key: str = "") -> str:
        """Return the beginning of a fault of an entry: the file, the line of `key` or of the entry, its number."""
        line = self.document.line(index, key) if self.document else None
        return f"{self.name}{f', line {line}' if line else ''}, entry {index + 1}{f' ({word})' if word else ''}"


def read_events(value: str | list[Any] | None) -> Listed:
    """Return the list in the file that `value` names, or the list that it is.

    Raises:
        InputError: The file cannot be read, or holds no list; one line a fault, with its line.
    """
    if value is None:
        return Listed("events", Path(), [])
    if isinstance(value, list):
        return Listed("events", Path(), value)
    document = read_yaml(Path(value), f"events={value}")
    entries = document.plain(_TEXTS)
    if not isinstance(entries, list):
        found = "nothing" if entries is None else type(entries).__name__
        raise InputError(f"{document.at()}: must hold a list of events, each '- at: …' (docs/events.md); found {found}")
    return Listed(document.where, Path(value).parent, entries, document)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Put the garbage collector off: what a long trace makes lives on, and looking through it takes as long again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_no_collection()
def compile_events(listed: Listed, topology: Topology, workload: str) -> tuple[Change, ...]:
    """In the order of their times; of one time what is set comes before what goes down or up.

    Raises:
        InputError: with every fault at once, each with its entry.
    """
    faults: list[str] = []
    found: list[tuple[Change, Entry]] = []
    downs: list[Outage] = []
    heals: list[Heal] = []
    for number, values in enumerate(listed.entries):
        if len(faults) > _MAX_FAULTS:
            break
        entry = _entry(listed, number, values, topology, workload, faults)
        if entry is None:
            continue
        meanings = list(WORDS[entry.word].meaning(entry))
        faults += entry.faults
        if entry.faults:
            continue
        found += [(meaning, entry) for meaning in meanings if isinstance(meaning, Change)]
        downs += [meaning for meaning in meanings if isinstance(meaning, Outage)]
        heals += [meaning for meaning in meanings if isinstance(meaning, Heal)]
    found.sort(key=lambda pair: pair[0].t_s)
    faults += _value_faults(found, topology)
    if not faults:  # without the entries at fault these would tell of their absence
        faults += [*outages.end_by(heals, downs), *_member_faults(found)]
    changes = sorted([*(change for change, _ in found), *outages.changes(downs)], key=lambda change: change.t_s)
    if len(changes) > MAX_CHANGES:
        faults.append(f"{listed.name}: {len(changes)} changes in all, at most {MAX_CHANGES} are taken")
    raise_input_faults(several(list(dict.fromkeys(faults)), listed.name, _MAX_FAULTS))
    return tuple(changes)


def _entry(
    listed: Listed, index: int, values: Any, topology: Topology, workload: str, faults: list[str]
) -> Entry | None:
    """None where it cannot be told what is meant."""
    where = listed.where(index)
    if not isinstance(values, dict):
        faults.append(f"{where}: must be keys and values, as in 'at: 10 s'; found {values!r:.80}")
        return None
    words = [key for key in values if key in WORDS]
    if len(words) != 1:
        said = shown(", ".join(map(str, words or values)) or "nothing")
        faults.append(f"{where}: must say one of {', '.join(WORDS)}; found {said}")
        return None
    (word,) = words
    entry = Entry(functools.partial(listed.where, index, word), word, values, listed.folder, topology)
    known = ("at", word, *WORDS[word].keys)
    for key in values:
        if key not in known:
            entry.fault(unknown(str(key), str(key), known, "key"))
    if word == "leave" and workload != ELASTIC_WORKLOAD:
        entry.fault(f"workload={workload} is not asked to leave, only workload={ELASTIC_WORKLOAD} is; any takes crash")
    return entry


def _value_faults(changes: Iterable[tuple[Change, Entry]], topology: Topology) -> Iterator[str]:
    """What no link can be set to, with all that was set before; the first fault of each entry and direction."""
    profiles = ProfileFaults(topology)
    told: set[tuple[str, str | None, str]] = set()
    for change, entry in changes:
        if change.kind != "set":
            continue
        for start, before, after in profiles.apply(change):
            if (entry.where, change.link, start) in told:
                continue
            told.add((entry.where, change.link, start))
            for fault in after:
                if fault not in before:  # or it is another entry's
                    place = "{}, line {}: ".format(*entry.places[change.t_s]) if change.t_s in entry.places else ""
                    yield f"{entry.where}: {place}link {change.link} from {start} at {change.t_s:g} s{fault}"


def _member_faults(changes: Iterable[tuple[Change, Entry]]) -> Iterator[str]:
    absent: set[str] = set()
    for change, entry in changes:
        if change.node is None:
            continue
        if (change.kind == "join") != (change.node in absent):
            state = "is not there any more" if change.node in absent else "is there: only who left or crashed can join"
            yield f"{entry.where}: {change.node} {state} at {change.t_s:g} s"
        (absent.discard if change.kind == "join" else absent.add)(change.node)
