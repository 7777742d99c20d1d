"""`list` survives any directory; `clean` takes run ids and nothing else."""

from __future__ import annotations

import csv
import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.core.errors import InputError
from testbed.core.files import read_object
from testbed.core.record import run_directory, run_row
from testbed.core.record.run_directory import RunDir
from testbed.core.record.summary import empty_summary
from testbed.orchestrator.cli.clean import clean
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.run_store import listing
from tests.counting import counted

RUN = "20260101T000000Z-wan1g-ddp-none-0123abcd"


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "RUNTIME_ROOT", tmp_path / "run")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "runs"
    path.mkdir()
    return path


def finished(root: Path, run_id: str, **values: Any) -> Path:
    path = root / run_id
    path.mkdir()
    summary = {
        **empty_summary(),
        "run_id": run_id,
        "status": "completed",
        "verdict": "valid",
        "topo": "wan1g",
        **values,
    }
    (path / "summary.json").write_text(json.dumps(summary))
    return path


def status(root: Path, name: str) -> str:
    return next(str(row["status"]) for row in run_row.read_rows(root) if row["run_id"] == name)


def test_a_finished_run_shows_its_summary(root: Path) -> None:
    metric = {"name": "accuracy", "value": 0.98, "best": 0.98, "target": None, "time_to_target_s": None}
    finished(root, RUN, metric=metric, bytes={"wire_wan": 5}, time_s=3.0)
    (row,) = run_row.read_rows(root)
    assert (row["status"], row["metric_last"], row["wan_bytes"], row["time_s"]) == ("completed", 0.98, 5, 3.0)
    assert set(row) == set(run_row.NAMES)


def test_a_simulated_run_is_marked(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(root, RUN, kind="emulated")
    finished(root, RUN.replace("wan1g", "lan"), kind="simulated")
    assert [row["kind"] for row in run_row.read_rows(root)] == ["simulated", "emulated"]
    assert main(["list", "--runs", str(root)]) == 0
    assert capsys.readouterr().out.count("valid, simulated") == 1


def test_a_run_without_summary_is_running_or_killed(root: Path) -> None:
    run = RunDir(root / RUN)
    run.path.mkdir()
    run.spec.write_text(json.dumps(compose([]).to_json()))
    assert status(root, RUN) == "killed"
    assert run_row.read_rows(root)[0]["topo"] == "wan1g"
    with run.held():
        assert status(root, RUN) == "running"


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "7", '{"status": null}', '{"status": "completed"}', "\x00", "[" * 100_000),
        '{"schema_version": 1, "status": "completed", "bytes": 7}',
        '{"schema_version": 1, "status": ["completed"]}',
    ],
)
def test_a_damaged_summary_is_named_and_nothing_breaks(root: Path, text: str) -> None:
    (root / RUN).mkdir()
    (root / RUN / "summary.json").write_text(text)
    finished(root, RUN.replace("2026", "2027"))
    assert status(root, RUN).startswith("damaged")
    assert status(root, RUN.replace("2026", "2027")) == "completed"


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_schema_version_is_named(root: Path, version: int) -> None:
    finished(root, RUN, schema_version=version)
    assert status(root, RUN) == f"refused: of schema version {version}, this program reads 1"


def test_what_blocks_fills_or_leads_away_is_named(root: Path) -> None:
    runs = {
        name: root / RUN.replace("2026", f"{2030 + i}") for i, name in enumerate(("pipe", "link", "huge", "folder"))
    }
    for path in runs.values():
        path.mkdir()
    os.mkfifo(runs["pipe"] / "summary.json")
    (runs["link"] / "summary.json").symlink_to("/etc/passwd")
    with (runs["huge"] / "summary.json").open("wb") as file:
        file.truncate(10**12)
    (runs["folder"] / "summary.json").mkdir()
    for name, why in (("pipe", "no regular"), ("link", "a link"), ("huge", "no such file"), ("folder", "no regular")):
        assert status(root, runs[name].name).startswith("damaged: summary.json is ")
        assert why in status(root, runs[name].name)


def test_numbers_that_are_none_are_left_out(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = finished(root, RUN, time_s=3.0, workers=True)
    text = (path / "summary.json").read_text()
    (path / "summary.json").write_text(text.replace('"time_s": 3.0', f'"time_s": 1e999, "seed": {"9" * 400}'))
    (row,) = run_row.read_rows(root)
    assert (row["time_s"], row["seed"], row["workers"], row["status"]) == (None, None, None, "completed")
    assert main(["list", "--runs", str(root)]) == 0
    assert main(["list", "--runs", str(root), "--json"]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_directory_that_cannot_be_read_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["list", "--runs", str(tmp_path / "file")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be read: Not a directory" in line


def test_list_leaves_alone_what_is_not_ours(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A killed run is sealed; what only looks like one is neither removed nor written to."""
    (root / RUN).mkdir()
    (root / RUN / "notes.txt").write_text("mine")
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "spec.json").write_text(json.dumps(compose([]).to_json()))
    link = root / RUN.replace("2026", "2027")
    link.symlink_to(elsewhere)
    assert main(["list", "--runs", str(root)]) == 0
    assert "it has no spec.json" in capsys.readouterr().err
    assert (root / RUN / "notes.txt").read_text() == "mine"
    assert link.is_symlink() and [path.name for path in elsewhere.iterdir()] == ["spec.json"]


def test_foreign_entries_are_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "[bold]notes").mkdir()
    (root / "file.txt").write_text("x")
    (root / RUN).symlink_to("/etc")
    (root / ".hidden").mkdir()
    assert [row["status"].split(":")[0] for row in run_row.read_rows(root)] == ["foreign"] * 3
    assert main(["list", "--runs", str(root)]) == 0
    assert "[bold]" in capsys.readouterr().out


def test_a_name_does_not_steer_the_terminal(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "\x1b]0;title\x07").mkdir()
    (root / "=1+1").mkdir()
    for form in ([], ["--csv"]):
        assert main(["list", "--runs", str(root), *form]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "?]0;title?" in out
    assert "'=1+1" in out, "a spreadsheet would take it for a formula"


def test_list_as_json_and_of_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--runs", str(root / "none"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    finished(root, RUN)
    assert main(["list", "--runs", str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["run_id"] == RUN


def test_list_as_csv(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(root, RUN, seed=3, time_s=1.5)
    assert main(["list", "--runs", str(root), "--csv"]) == 0
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (row["run_id"], row["seed"], row["time_s"], row["metric"]) == (RUN, "3", "1.5", "")
    assert main(["list", "--runs", str(root), "--csv", "--json"]) == 2


def test_list_as_latex_and_into_files(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(root, RUN, strategy="local_sgd", compressor="none", time_s=1.5)
    assert main(["list", "--runs", str(root), "--format", "latex"]) == 0
    assert r"local\_sgd & none &" in capsys.readouterr().out
    for name, begin in (("t.csv", "run_id,"), ("t.json", "["), ("t.tex", "% "), ("t.txt", "run ")):
        assert main(["list", "--runs", str(root), "-o", str(root.parent / name)]) == 0
        assert (root.parent / name).read_text().startswith(begin) and capsys.readouterr().out == ""
    assert main(["list", "--runs", str(root), "-o", "table.xyz"]) == 2
    assert "the suffix names no format; use one of .csv, .tex, .json, .txt" in capsys.readouterr().err


def test_list_has_one_unit_a_column_and_only_what_differs(root: Path) -> None:
    for number, seconds in enumerate((0.05, 90.0, 3.0)):
        sizes = {"wire_wan": 10 ** (5 + number)}
        metric = {"name": "accuracy", "value": 0.4, "best": 0.9}
        name = RUN.replace("2026", f"{2026 + number}")
        finished(root, name, time_s=seconds, bytes=sizes, metric=metric, workload="digits", workers=number)
    headings, cells, notes = listing.shown(run_row.read_rows(root))
    assert headings[-4:] == ["seed", "last accuracy", "time (s)", "WAN bytes (MB)"]
    assert [row[-2:] for row in cells] == [["0.05", "0.1"], ["90", "1"], ["3", "10"]]
    assert "workers" in headings and "workload" not in headings and notes == ["workload digits."]


def test_fields_of_1_0_keep_their_names_in_scripts_formats(root: Path) -> None:
    finished(root, RUN, metric={"name": "accuracy", "value": 0.4, "best": 0.9}, bytes={"wire_wan": 7})
    (row,) = json.loads(listing.formatted(run_row.read_rows(root), "json"))
    assert (row["metric"], row["metric_last"], row["metric_best"], row["wire_wan"], row["wan_bytes"]) == (
        *(0.4, 0.4, 0.9, 7, 7),
    )


def test_list_takes_filters_before_and_after_a_flag(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, topo in enumerate(("wan1g", "wan1g", "lan")):
        finished(root, RUN.replace("2026", f"{2026 + number}"), topo=topo, seed=number)
    (root / "notes").mkdir()
    assert main(["list", "topo=wan1g", "--json", "seed=1,2", "--runs", str(root)]) == 0
    captured = capsys.readouterr()
    assert [row["seed"] for row in json.loads(captured.out)] == [1]
    assert "1 of 4 entries" in captured.err
    assert main(["list", "--runs", str(root), "topo=wan1gg", "colour=red", "seed=x"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 3


def test_five_hundred_runs_answer_at_once(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    monkeypatch.setattr(run_row, "read_object", lambda path: read.append(path) or read_object(path))
    link = {"name": "oregon-virginia", "from": "oregon", "to": "virginia", "wan": True, "wire_bytes": 10**9}
    both = {"asked": 1e9, "measured": 0.99e9}
    links = [{**link, "rate_bit_s": both, "rtt_s": both, "loss_ratio": both}] * 10  # as large as a real summary
    calls = {}
    for first, count in ((0, 100), (100, 500)):
        for number in range(first, count):
            finished(root, f"20260101T{number:06d}Z-wan1g-ddp-none-{number:08x}", links=links, seed=number % 5)
        read.clear()
        asked = ["list", "seed=1", "verdict=valid", "--runs", str(root)]
        status, calls[count] = counted(functools.partial(main, asked))
        assert status == 0 and len(capsys.readouterr().out.splitlines()) > count / 5
        assert len(read) == len(set(read)) == count, "each summary once, and nothing else"
    assert calls[500] < 6 * calls[100], "as much more as there are more runs"


@pytest.mark.parametrize("name", ["..", "/etc", f"runs/{RUN}", f"{RUN}/../x", "", ".", f"{RUN}\n", "notes"])
def test_clean_refuses_what_is_no_run_id(root: Path, name: str) -> None:
    kept = finished(root, RUN)
    with pytest.raises(InputError, match="never paths"):
        clean([RUN, name], root)
    assert kept.exists()


def test_clean_refuses_a_link_and_a_living_run(root: Path) -> None:
    (root / RUN).symlink_to("/etc")
    with pytest.raises(InputError, match="not a directory of its own"):
        clean([RUN], root)
    (root / RUN).unlink()
    finished(root, RUN)
    with RunDir(root / RUN).held(), pytest.raises(InputError, match="alive"):
        clean([RUN], root)


def test_clean_removes_the_run_and_only_it(root: Path) -> None:
    gone, kept = finished(root, RUN), finished(root, RUN.replace("2026", "2027"))
    assert clean([RUN, RUN], root) == [f"{RUN}: removed"]
    assert not gone.exists() and kept.exists()


def test_a_hook_that_a_script_chose_stands_in_the_list(root: Path) -> None:
    hooks = [{"name": "topk", "target": "compressors.topk.TopK", "params": {"density": 0.01, "feedback": "auto"}}]
    finished(root, RUN, compressor="topk", hooks=hooks)
    (row,) = run_row.read_rows(root)
    assert (row["compressor"], row["hooks"]) == ("topk", "by the script: topk density=0.01")
    assert "by the script: topk density=0.01" in listing.formatted([row], "csv")


@pytest.mark.parametrize(
    ("versions", "is_shown"),
    [(("1bf1d45f15f4a9f7", "bdf8b5d0d0d0d0d0"), True), (("1bf1d45f15f4a9f7", None), False), ((None, None), False)],
)
def test_versions_of_the_user_s_code_are_shown_if_they_differ(
    versions: tuple[str | None, ...], is_shown: bool, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, version in enumerate(versions):
        finished(root, f"2026010{number + 1}T000000Z-lan-script-abcdef{number:02}", user_code=version)
    rows = run_row.read_rows(root)
    assert [row["user_code"] for row in rows] == list(versions)
    shown = Console(width=300)
    shown.print(listing.table(rows))
    out = capsys.readouterr().out
    assert ("user code" in out, "1bf1d4" in out, "bdf8b5" in out) == (is_shown,) * 3
