"""Whatever lies in the directory of runs: what can be read is archived, the rest is named and never run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.analysis.archive.archive import update
from testbed.core.record.run_directory import RunDir
from tests.unit.analysis.archived import assert_whole, copies, finished_run, require_prometheus, run_id, seal

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _prometheus() -> None:
    require_prometheus()


def without_last_line(text: str) -> str:
    return text.removesuffix("# EOF\n")


def cut(text: str) -> str:
    return text[: len(text) * 2 // 3]


def of_another_run(text: str) -> str:
    return text.replace(run_id(1), run_id(0))


def of_an_older_table(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if "longhaul_train_metric_ratio" not in line)


def with_fewer_labels(text: str) -> str:
    return text.replace('dilation="1",', "")


def out_of_order(text: str) -> str:
    lines = text.splitlines(keepends=True)
    at = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    return "".join(lines)


def twice(text: str) -> str:
    samples = [line for line in text.splitlines(keepends=True) if not line.startswith("#")]
    return "".join(samples) + text


def with_a_far_time(text: str) -> str:
    head, _ = text.split("\n", 2)[2].split("\n", 1)[0].rsplit(" ", 1)
    return f"{head} 99999999999.000\n{text}"


def with_what_is_no_number(text: str) -> str:
    return text.replace(" 1.0 ", " 1_0.0 ", 1)


def begun_at_another_time(text: str) -> str:
    return text.replace(" 17357870", " 17357880")


@pytest.mark.parametrize(
    "damage",
    [
        without_last_line,
        cut,
        of_another_run,
        of_an_older_table,
        with_fewer_labels,
        out_of_order,
        twice,
        with_a_far_time,
        with_what_is_no_number,
        begun_at_another_time,
    ],
)
def test_samples_of_another_form_are_made_again_from_the_events(
    runs: Path, output: Path, damage: Callable[[str], str]
) -> None:
    _, run = copies(finished_run(runs), 2)
    whole = run.openmetrics.read_text()
    assert damage(whole) != whole
    run.openmetrics.write_text(damage(whole))
    done = update(runs, output)
    assert done.remarks == []
    assert_whole(done, runs, 2)
    state = json.loads((output / "state.json").read_text())["runs"]
    assert state[run_id(1)]["samples"] == state[run_id(0)]["samples"]


def test_a_copied_directory_is_a_run_of_its_own(runs: Path, output: Path) -> None:
    run = finished_run(runs)
    shutil.copytree(run.path, runs / f"{run.run_id}.copy")
    assert_whole(update(runs, output), runs, 2)


def break_run(run: RunDir, how: str) -> None:
    if how == "no spec":
        run.spec.unlink()
        run.openmetrics.unlink()
    elif how == "a pipe for a summary":
        run.summary.unlink()
        os.mkfifo(run.summary)
    elif how == "a pipe for samples":
        run.openmetrics.unlink()
        os.mkfifo(run.openmetrics)
    elif how == "a link for samples":
        run.openmetrics.unlink()
        run.openmetrics.symlink_to("/dev/zero")
    elif how == "no summary":
        run.summary.unlink()
    elif how == "no object for a summary":
        run.summary.write_text("[" * 100_000)
    elif how == "a later schema":
        seal(run, schema_version=2)
    elif how == "an absurd time":
        run.openmetrics.unlink()
        with run.events.open("a") as file:
            file.write('{"event": "host", "t_s": 1e300, "cpu_idle_ratio": 0.5}\n')
    elif how == "code":
        run.spec.write_text("__import__('os').abort()")
        run.openmetrics.write_bytes(b"\xff\x00 1 2\n")


@pytest.mark.parametrize(
    "how",
    [
        "no spec",
        "a pipe for a summary",
        "a pipe for samples",
        "a link for samples",
        "no summary",
        "no object for a summary",
        "a later schema",
        "an absurd time",
        "code",
    ],
)
def test_what_cannot_be_read_is_named_and_left_out(runs: Path, output: Path, how: str) -> None:
    finished_run(runs)
    break_run(finished_run(runs, 1), how)
    done = update(runs, output)
    assert len(done.remarks) == 1 and done.remarks[0].startswith(f"{run_id(1)}: left out: ")
    assert_whole(done, runs, 1)
    assert update(runs, output).added == 0


def test_what_is_no_run_is_named_and_left_out(runs: Path, output: Path, tmp_path: Path) -> None:
    run = finished_run(runs)
    (runs / "notes.txt").write_text("mine")
    (runs / "20250102T030405Z-file").write_text("")
    (runs / "20250102T030405Z-link").symlink_to(run.path)
    (runs / "esc\x1b[31m").mkdir()
    done = update(runs, output)
    assert len(done.remarks) == 4 and all("left out: not a run of Longhaul" in line for line in done.remarks)
    assert all(line.isprintable() for line in done.remarks)
    assert_whole(done, runs, 1)
    assert update(tmp_path / "nowhere", output).runs == 0
