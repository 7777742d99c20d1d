"""From `events=` to the changes of a spec: read, compiled, checked against the topology; every fault at once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from testbed.core.errors import InputError, raise_input_faults
from testbed.core.spec.schedule import Change
from testbed.core.spec.topology import Topology
from testbed.orchestrator.config.events import outages
from testbed.orchestrator.config.events.entry import Entry
from testbed.orchestrator.config.events.outages import Heal, Outage
from testbed.orchestrator.config.events.profiles import Profiles
from testbed.orchestrator.config.events.vocabulary import MAX_CHANGES, WORDS
from testbed.orchestrator.config.grammar.overrides import first_line, unknown

ELASTIC_WORKLOAD = "script"
"""The one workload whose workers may be asked to leave: it brings its own way of coping with it."""


@dataclass(frozen=True)
class Listed:
    """A list of events as it was read."""

    name: str
    """For faults."""
    folder: Path
    """That paths in it are relative to."""
    entries: list[Any]


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses a key that is there twice, of which YAML would keep the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.MarkedYAMLError(problem=f"{key!r} is there twice", problem_mark=node.start_mark)
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return found


def read_events(value: str | list[Any] | None) -> Listed:
    """The file that `value` names, or the list that it is.

    Raises:
        InputError: there is no such file, or it holds no list.
    """
    if value is None:
        return Listed("events", Path(), [])
    if isinstance(value, list):
        return Listed("events", Path(), value)
    path = Path(value)
    try:
        entries = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not text"
        raise InputError(f"events={value}: {why}; give the path of a YAML file (docs/events.md)") from error
    except yaml.YAMLError as error:
        raise InputError(f"events={value}: {_yaml_fault(error)}") from error
    if not isinstance(entries, list):
        raise InputError(f"events={value}: must hold a list of events, each '- at: …'; found {type(entries).__name__}")
    return Listed(f"events: {path.name}", path.parent, entries)


def _yaml_fault(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark else ""
    return f"{where}{getattr(error, 'problem', None) or first_line(error)}"


def compile_events(listed: Listed, topology: Topology, workload: str) -> tuple[Change, ...]:
    """In the order of their times; of one time what is set comes before what goes down or up.

    Raises:
        InputError: with every fault at once, each with its entry.
    """
    faults: list[str] = []
    found: list[tuple[Change, Entry]] = []
    downs: list[Outage] = []
    heals: list[Heal] = []
    for number, values in enumerate(listed.entries, 1):
        entry = _entry(f"{listed.name}, entry {number}", values, listed.folder, topology, workload, faults)
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
    raise_input_faults(dict.fromkeys(faults))
    return tuple(changes)


def _entry(where: str, values: Any, folder: Path, topology: Topology, workload: str, faults: list[str]) -> Entry | None:
    """None where it cannot be told what is meant."""
    if not isinstance(values, dict):
        faults.append(f"{where}: must be keys and values, as in 'at: 10 s'; found {values!r:.80}")
        return None
    words = [key for key in values if key in WORDS]
    if len(words) != 1:
        said = ", ".join(map(str, words or values)) or "nothing"
        faults.append(f"{where}: must say one of {', '.join(WORDS)}; found {said}")
        return None
    (word,) = words
    entry = Entry(f"{where} ({word})", word, values, folder, topology)
    known = ("at", word, *WORDS[word].keys)
    for key in values:
        if key not in known:
            entry.fault(unknown(str(key), str(key), known, "key"))
    if word == "leave" and workload != ELASTIC_WORKLOAD:
        entry.fault(f"workload={workload} is not asked to leave, only workload={ELASTIC_WORKLOAD} is; any takes crash")
    return entry


def _value_faults(changes: Iterable[tuple[Change, Entry]], topology: Topology) -> Iterator[str]:
    """What no link can be set to, with all that was set before; the first fault of each entry and direction."""
    profiles = Profiles(topology)
    told: set[tuple[str, str, str]] = set()
    for change, entry in changes:
        if change.kind != "set":
            continue
        for link, start, before, after in profiles.apply(change):
            found = list(after.faults(""))
            if not found or (entry.where, link, start) in told:
                continue
            told.add((entry.where, link, start))
            for fault in found:
                if fault not in before.faults(""):  # or it is another entry's
                    yield f"{entry.where}: link {link} from {start} at {change.t_s:g} s{fault}"


def _member_faults(changes: Iterable[tuple[Change, Entry]]) -> Iterator[str]:
    absent: set[str] = set()
    for change, entry in changes:
        if change.node is None:
            continue
        if (change.kind == "join") != (change.node in absent):
            state = "is not there any more" if change.node in absent else "is there: only who left or crashed can join"
            yield f"{entry.where}: {change.node} {state} at {change.t_s:g} s"
        (absent.discard if change.kind == "join" else absent.add)(change.node)
