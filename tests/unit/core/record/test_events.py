"""Every kind of event is declared once; its lines are those that earlier versions wrote, byte for byte."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from scripts import events_doc
from testbed.core.record.events import kfac, note, training
from testbed.core.record.events.base import (
    Event,
    Record,
    StepEvent,
    WorkerEvent,
    field_name,
    json_name,
    type_words,
)
from testbed.core.record.events.note import MAX_ENTRIES, MAX_FIELDS, Note
from testbed.core.record.events.run import PHASES, PhaseTimes, Step, UsedFile
from testbed.orchestrator.run.workers.messages import checked_message

GOLDEN = Path(__file__).resolve().parents[3] / "data" / "events" / "lines.jsonl"
LINES = GOLDEN.read_text().splitlines()
OBJECTS = {"phase_s": PhaseTimes, "factors": kfac.OwnedFactor, "factorised": training.Factorised, "files": UsedFile}
"""Fields that hold objects of a class, or lists of them."""
STAMP = ("t_s", "rank", "step")


def built(line: dict[str, Any]) -> Record:
    """The event of a line, made as its sender makes it."""
    kind = Event.kinds[line["event"]]
    left_out = STAMP if issubclass(kind, StepEvent) else () if "t_s" in get_type_hints(kind) else ("t_s",)
    fields = {field_name(key): value for key, value in line.items() if key not in (*left_out, "event")}
    for name, inner in OBJECTS.items():
        if name in fields:
            given = fields[name]
            fields[name] = [inner(**one) for one in given] if isinstance(given, list) else inner(**given)
    return kind(**fields)


@pytest.mark.parametrize("text", LINES, ids=[json.loads(text)["event"] for text in LINES])
def test_a_line_is_that_of_earlier_versions_byte_for_byte(text: str) -> None:
    line = json.loads(text)
    event = built(line)
    if isinstance(event, StepEvent):
        found = event.stamped(line["t_s"], line["rank"], line["step"])
    else:
        found = event.to_json()
        while (key := next(reversed(found))) not in line:  # fields that came later: at the end, and null
            assert found.pop(key) is None
        if "t_s" in line and "t_s" not in found:  # the run adds its time
            found = {"t_s": line["t_s"], **found}
    assert json.dumps(found) == text


@pytest.mark.parametrize(
    "text", [text for text in LINES if issubclass(Event.kinds[json.loads(text)["event"]], WorkerEvent)]
)
def test_what_a_worker_may_send_passes_as_it_is(text: str) -> None:
    line = json.loads(text)
    if line["event"] in ("model", "payload", "hook", "used", "fault", "leaving", "warm"):
        line.pop("t_s", None)
    assert json.dumps(checked_message(line, line["rank"] or 0)) == json.dumps(line | {"rank": line["rank"] or 0})


def test_the_golden_lines_have_every_kind_but_those_that_are_not_recorded() -> None:
    known = {json.loads(text)["event"] for text in LINES}
    assert set(Event.kinds) - known == {"warm", "leaving", "note"}


@pytest.mark.parametrize("kind", Event.kinds.values(), ids=list(Event.kinds))
def test_each_field_says_what_it_holds(kind: type[Event]) -> None:
    assert kind.__doc__ is not None and not kind.__doc__.startswith(f"{kind.__name__}(")
    if kind is Note:
        return
    for name, annotation in get_type_hints(kind, include_extras=True).items():
        if name in kind.__dataclass_fields__:
            assert type_words(annotation)


def test_the_page_has_every_kind_with_its_keys_and_the_table_no_key_without_a_meaning() -> None:
    lines = {line.split("`")[1]: line for line in events_doc.text().splitlines() if line.startswith("- `")}
    assert set(Event.kinds) <= set(lines)
    rows = list(csv.DictReader(events_doc.table().splitlines()))
    assert [row for row in rows if not row["meaning"] or (row["key"] and not row["type"])] == []
    keys = {(row["event"], row["key"]) for row in rows if row["key"] not in ("", "t_s", "rank", "step")}
    assert [(event, key) for event, key in keys if f"`{key}`" not in lines[event]] == []
    declared = {(name, json_name(one.name)) for name, kind in Event.kinds.items() for one in fields(kind)}
    assert {(name, key) for name, key in declared if name != "note"} <= {(row["event"], row["key"]) for row in rows}


def test_a_note_is_a_line_of_its_kind() -> None:
    line = Note("mine", {"share": 0.5, "names": ("a", "b"), "none": None}).stamped(1.5, 2, 3)
    assert line == {
        "t_s": 1.5,
        "rank": 2,
        "step": 3,
        "event": "note",
        "kind": "mine",
        "share": 0.5,
        "names": ["a", "b"],
        "none": None,
    }
    assert checked_message(line, 2) == line


@pytest.mark.parametrize(
    ("kind", "fields", "told"),
    [
        ("my note", {}, "kind='my note'"),
        ("", {}, "kind=''"),
        ("mine", {"rank": 1}, "field 'rank'"),
        ("mine", {"a b": 1}, "field 'a b'"),
        ("mine", {"x": math.nan}, "x=nan"),
        ("mine", {"x": 2**63}, "x=9223372036854775808"),
        ("mine", {"x": [[1]]}, "x=[[1]]"),
        ("mine", {"x": {"a": 1}}, "x={'a': 1}"),
        ("mine", {"x": [0] * (MAX_ENTRIES + 1)}, "x=[0, 0"),
        ("mine", {"x": "a" * 10_001}, "x='aaa"),
        ("mine", {f"x{index}": 1 for index in range(MAX_FIELDS + 1)}, f"{MAX_FIELDS + 1} fields"),
    ],
)
def test_a_note_that_cannot_be_kept_is_refused_on_both_sides(kind: str, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=r"^note") as raised:
        Note(kind, fields)
    assert told in str(raised.value)
    line = {"t_s": 1.0, "step": 1, "event": "note", "kind": kind, **fields}
    if "rank" not in fields:  # which a channel has by itself
        with pytest.raises(ValueError, match=r"^note"):
            checked_message(line, 0)


def test_all_that_is_wrong_with_a_note_is_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)kind.*\n.*rank.*\n.*x=nan"):
        Note("a b", {"rank": 1, "x": math.nan})
    assert note.note_faults({"kind": "mine", "x": True}) == []


def test_phases_are_the_fields_of_one_class() -> None:
    assert PHASES[0] == "forward" and PHASES[-1] == "exposed_communication" and len(PHASES) == 7
    assert "phase_s" in get_type_hints(Step)
