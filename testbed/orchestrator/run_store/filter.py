"""Runs chosen by words: `topo=wan1g compressor=topk,int8 verdict=valid since=1d`. All must hold; a comma means or."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from testbed.core.errors import raise_input_faults
from testbed.core.record.run_row import UNREADABLE, Row, since_unix_s, started_unix_s, status_word
from testbed.core.record.summary import STATUSES, VERDICTS
from testbed.orchestrator.machine.clone import CONF_DIR

NAMES = ("topo", "workload", "strategy", "compressor")
NUMBERS = ("workers", "seed")
KEYS = (*NAMES, *NUMBERS, "status", "verdict", "since")
_STATUSES = (*STATUSES, "running", *UNREADABLE)


@dataclass
class RunFilter:
    wanted: dict[str, frozenset[str]] = field(default_factory=dict)
    """By key, the values of which a run must have one."""
    since_unix_s: float | None = None

    def takes(self, row: Row) -> bool:
        if self.since_unix_s is not None and not started_unix_s(str(row["run_id"])) >= self.since_unix_s:
            return False
        return all(_value(row, key) in values for key, values in self.wanted.items())


def _value(row: Row, key: str) -> str | None:
    if key == "status":
        return status_word(row)
    value = row[key]
    return f"{value:.0f}" if key in NUMBERS and value is not None else value


def parse(command: str, words: Sequence[str], rows: Iterable[Row], now_s: float | None = None) -> RunFilter:
    """What `words` ask for.

    Args:
        command: named in the faults.
        rows: of the runs there are; a name is known if a run bears it or it can be given to a run.

    Raises:
        InputError: words that cannot be read, unknown keys and values, all at once.
    """
    chosen = RunFilter()
    rows = list(rows)
    faults: list[str] = []
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in KEYS:
            faults.append(_unknown_key(command, word, key if equals else None))
        elif key in chosen.wanted or (key == "since" and chosen.since_unix_s is not None):
            faults.append(f"{command} {word}: {key} is given twice; give it once, with commas for several values")
        elif key == "since":
            chosen.since_unix_s = since_unix_s(text, time.time() if now_s is None else now_s)
            if chosen.since_unix_s is None:
                faults.append(f"{command} {word}: neither an age such as 90s, 30m, 12h, 7d nor a date as 2026-11-21")
        else:
            values = text.split(",")
            faults += _value_faults(command, word, key, values, rows)
            chosen.wanted[key] = frozenset(str(int(v)) if key in NUMBERS and _is_count(v) else v for v in values)
    raise_input_faults(faults)
    return chosen


def _value_faults(command: str, word: str, key: str, values: Sequence[str], rows: Iterable[Row]) -> list[str]:
    if key in NUMBERS:
        return [f"{command} {word}: {value!r} is not a whole number" for value in values if not _is_count(value)]
    known = {"status": _STATUSES, "verdict": VERDICTS}.get(key) or _names(key, rows)
    return [_unknown(f"{command} {word}", value, known, key) for value in values if value not in known]


def _names(group: str, rows: Iterable[Row]) -> set[str]:
    configured = {path.stem for path in (CONF_DIR / group).glob("*.yaml")}
    return configured | {row[group] for row in rows if row[group] is not None}


def _unknown_key(command: str, word: str, key: str | None) -> str:
    if key is None:
        return f"{command} {word}: not of the form key=value; known keys: {', '.join(KEYS)}"
    return _unknown(f"{command} {word}", key, KEYS, "key")


def _unknown(asked: str, name: str, known: Iterable[str], what: str) -> str:
    from testbed.orchestrator.config.grammar.overrides import (
        unknown,  # loads Hydra, which a list without faults need not wait for
    )

    return unknown(asked, name, known, what)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20
