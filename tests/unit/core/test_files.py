"""What lies in a run directory is data: it holds nobody up, fills no memory and steers no terminal."""

from __future__ import annotations

import io
import json
import os
import socket
from pathlib import Path

import pytest

from testbed.core import files
from testbed.core.files import is_regular, open_regular, printable, read_object, spreadsheet_safe, whole_lines
from testbed.core.record.run_directory import RunDir
from testbed.core.record.summary import empty_summary, form_fault, version_fault


def test_an_object_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": [1, NaN, -Infinity], "b": "é"}')
    assert read_object(tmp_path / "a.json") == {"a": [1, None, None], "b": "é"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("\x00", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"a":' * 100_000, "is not JSON"),
        ('{"a": ' + "9" * 5000 + "}", "is not JSON"),
        ("[1]", "holds no object"),
        ("7", "holds no object"),
    ],
    ids=["empty", "cut", "zero", "deep-lists", "deep-objects", "long-number", "list", "number"],
)
def test_what_is_no_object_is_named(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=rf"a\.json {why}"):
        read_object(tmp_path / "a.json")


def test_a_file_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(10**12)  # sparse: no disk is taken
    with pytest.raises(ValueError, match="no such file of ours"):
        read_object(tmp_path / "a.json")


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("link", "pipe", "folder", "socket"):
            with pytest.raises(ValueError, match=f"{name} is (a link|no regular file)"):
                open_regular(tmp_path / name)  # of a pipe, a plain open would wait for a writer for ever
            assert not is_regular(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "nothing")
    assert is_regular(tmp_path / "real") and not is_regular(tmp_path / "nothing")


def test_a_line_beyond_all_measure_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_CHARACTERS", 10)
    assert list(whole_lines(io.StringIO("short\n" + "x" * 25 + "\nlast\ncut"))) == ["short\n", "xxxxx\n", "last\n"]


def test_events_survive_what_is_between_them(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "20260101T000000Z-x")
    first, last = {"event": "a", "t_s": 1}, {"event": "b", "t_s": 2}
    lines = [
        json.dumps(first),
        "[" * 100_000,
        '{"event":' * 50_000,
        "\x00\xff",
        "null",
        json.dumps(last),
        '{"event": "cut',
    ]
    run.events.write_text("\n".join(lines))
    assert list(run.read_events()) == [first, last]
    run.events.unlink()
    os.mkfifo(run.events)
    with pytest.raises(ValueError, match=r"events\.jsonl is no regular file"):
        list(run.read_events())


def test_text_steers_no_terminal() -> None:
    assert printable("plain é 漢") == "plain é 漢"
    assert printable("\x1b[31mred\x07\r\n\u202egnirts") == "?[31mred????gnirts"


def test_a_cell_is_no_formula() -> None:
    assert [spreadsheet_safe(text) for text in ("=1+1", "+1", "-1", "@a")] == ["'=1+1", "'+1", "'-1", "'@a"]
    assert [spreadsheet_safe(value) for value in ("topk", "", -1.5, None)] == ["topk", "", -1.5, None]
    assert spreadsheet_safe("a\x1b[31m") == "a?[31m"


def test_another_schema_version_is_refused_by_name() -> None:
    assert version_fault(empty_summary()) is None
    assert version_fault({"schema_version": 2}) == "of schema version 2, this program reads 1"
    assert version_fault({"schema_version": 0}) == "of schema version 0, this program reads 1"
    for strange in ({}, {"schema_version": None}, {"schema_version": True}, {"schema_version": "1"}):
        assert version_fault(strange) == "of no schema version, this program reads 1"


def test_the_form_of_a_summary_is_checked_as_far_as_it_must_be() -> None:
    summary = empty_summary() | {"status": "completed"}
    assert form_fault(summary) is None
    assert form_fault({"status": "completed"}) is None, "what is lacking counts as null"
    assert form_fault({}) == "it has no status"
    assert form_fault({**summary, "bytes": 7}) == "its 'bytes' is no object"
    assert form_fault({**summary, "reasons": "x"}) == "its 'reasons' is no list"
