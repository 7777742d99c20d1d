"""`report` and `compare` choose runs by id and by filter, and hand them to the analysis."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.record import run_directory
from testbed.core.record.run_directory import write_json
from testbed.core.record.summary import empty_summary
from testbed.orchestrator.cli import report
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.cli.report import chosen

IDS = [f"2026010{day}T000000Z-wan1g-ddp-{name}-0123abcd" for day, name in ((1, "none"), (2, "topk"), (3, "int8"))]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_directory, "RUNTIME_ROOT", tmp_path / "run")
    for run_id in IDS:
        made(tmp_path / "runs", run_id, compressor=run_id.split("-")[3])
    return tmp_path / "runs"


def made(root: Path, run_id: str, **values: Any) -> Path:
    path = root / run_id
    path.mkdir(parents=True)
    words = {"run_id": run_id, "status": "completed", "verdict": "valid", "topo": "wan1g", "kind": "emulated"}
    write_json(path / "summary.json", empty_summary() | words | values)
    (path / "events.jsonl").touch()
    return path


def test_ids_in_their_order_then_what_filters_take(root: Path) -> None:
    assert chosen("report", [IDS[2], IDS[0], IDS[2]], root) == [IDS[2], IDS[0]]
    assert chosen("report", ["compressor=topk,none"], root) == IDS[:2]
    assert chosen("report", [IDS[2], "compressor=topk,int8"], root) == [IDS[2], IDS[1]]
    assert chosen("report", [], root) == IDS


def test_killed_runs_are_sealed_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "seal_killed_or_say", lambda runs: made(runs, "20260108T000000Z-killed", seed=8))
    assert chosen("report", ["seed=8"], root) == ["20260108T000000Z-killed"]


def test_what_cannot_be_read_is_left_out_of_all_and_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(root, "20260109T000000Z-new", schema_version=2)
    (root / "notes").mkdir()
    assert chosen("report", [], root) == IDS
    assert "2 of 5 entries" in capsys.readouterr().err
    assert chosen("report", ["20260109T000000Z-new"], root) == ["20260109T000000Z-new"], "the analysis says why not"


def test_every_fault_of_ids_and_filters_at_once(root: Path) -> None:
    with pytest.raises(InputError) as caught:
        chosen("compare", ["../etc", "notes", IDS[0], "topo=mars", "x=y"], root)
    assert [fault.split(":")[0] for fault in caught.value.faults] == [
        *("compare ../etc", "compare notes", "compare topo=mars", "compare x=y")
    ]
    with pytest.raises(InputError, match="compare seed=7: no such runs"):
        chosen("compare", ["seed=7"], root)
    with pytest.raises(InputError, match="no such runs"):
        chosen("compare", [], root / "none")


def test_compare_prints_each_form(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *IDS[:2], "--runs", str(root)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["strategy", "compressor"] and "kind emulated" in "".join(lines)
    assert main(["compare", "--json", "compressor=topk", "--runs", str(root)]) == 0
    assert [row["run_ids"] for row in json.loads(capfd.readouterr().out)["rows"]] == [[IDS[1]]]
    assert main(["compare", "--csv", "--runs", str(root)]) == 0
    assert len(list(csv.DictReader(capfd.readouterr().out.splitlines()))) == 3
    assert main(["compare", "--latex", "--runs", str(root)]) == 0
    assert r"\toprule" in capfd.readouterr().out
    assert main(["compare", "--latex", "--csv", "--runs", str(root)]) == 2


@pytest.mark.parametrize(("name", "begin"), [("t.csv", "method,"), ("t.tex", "% "), ("t.json", "{"), ("t.txt", "str")])
def test_compare_writes_the_format_that_a_file_s_suffix_names(root: Path, name: str, begin: str) -> None:
    output = root.parent / "new" / name
    assert main(["compare", "-o", str(output), "--runs", str(root)]) == 0
    assert output.read_text().startswith(begin)
    assert main(["compare", "--output", f"{output}.unknown", "--runs", str(root)]) == 2


@pytest.mark.parametrize("name", ["r.html", "new/sub/r.html"])
def test_a_report_and_its_new_folders_are_the_caller_s(root: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    given: list[Path] = []
    monkeypatch.setattr(report, "give_to_caller", given.append)
    output = root.parent / name
    assert main(["report", IDS[0], "-o", str(output), "--runs", str(root)]) == 0
    assert output.exists() and given == [root.parent / Path(name).parts[0]]


def test_a_report_that_cannot_be_written_is_given_to_nobody(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Path] = []
    monkeypatch.setattr(report, "give_to_caller", given.append)
    assert main(["report", IDS[0], "-o", str(root), "--runs", str(root)]) == 2
    assert given == []


def test_another_schema_version_is_refused_by_name(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = made(root, "20260109T000000Z-new", schema_version=7)
    assert main(["compare", IDS[0], path.name, "--runs", str(root)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert path.name in line and "of schema version 7, this program reads 1" in line
