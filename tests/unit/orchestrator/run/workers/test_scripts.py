"""Which worker a failed run of a user's script names: the first one to leave, not its victims."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from testbed.orchestrator.config.programs import marks_name
from testbed.orchestrator.emulation.containers.exit_report import ended
from testbed.orchestrator.run.workers.attended import NOTE, AttendedProcess
from testbed.orchestrator.run.workers.scripts import Scripts


class Box:
    """A container, and how it ended."""

    def __init__(self, folder: Path, node: str) -> None:
        self.node, self.log, self.pid = node, folder / f"{node}.log", 1
        self.log.write_text("its last line\n")
        self.code: int | None = None

    def exit_code(self) -> int | None:
        return self.code

    def ended(self, code: int) -> str:
        return ended(code)


def said(folder: Path, ends: dict[str, tuple[int | None, str]], away: str = "") -> str:
    """The fault of a run of nodes a, b, c, of which each has ended with a status and left its marks."""
    scripts = Scripts(lambda _: folder)
    dead = {}
    for rank, (node, (code, marks)) in enumerate(ends.items()):
        box: Any = Box(folder, node)
        box.code = code
        scripts.attend(box, rank)
        (folder / marks_name(rank)).write_text("".join(f"{mark}\n" for mark in marks.split(", ")))
        if code:
            dead[node] = code
    return scripts.blame(dead, lambda node: node == away, lambda _, code: ended(code), patience_s=0.1)


def test_the_first_to_end_is_named_though_a_lower_rank_has_failed_too(tmp_path: Path) -> None:
    ends = {"a": (1, "started 1, joined 2, ended 9.01"), "b": (3, "started 1, joined 2, ended 9")}
    assert said(tmp_path, ends) == "worker 1 on b ended with status 3"


def test_who_left_the_group_first_is_named_though_a_victim_ended_before_it(tmp_path: Path) -> None:
    ends = {"a": (-6, "joined 2, left 8.1, ended 8.2"), "b": (7, "joined 2, left 8, ended 8.3"), "c": (1, "joined 2")}
    assert said(tmp_path, ends) == "worker 1 on b ended with status 7"


def test_who_left_with_status_0_is_named_next_to_who_failed_for_it(tmp_path: Path) -> None:
    ends = {"a": (1, "joined 2, left 8.1, ended 8.2"), "b": (0, "joined 2, left 8, ended 8.3")}
    assert said(tmp_path, ends) == "worker 0 on a ended with status 1; worker 1 on b had ended before it, with status 0"


def test_who_left_and_still_runs_is_named_too(tmp_path: Path) -> None:
    ends = {"a": (1, "joined 2, ended 8.2"), "b": (None, "joined 2, left 8")}
    fault = "worker 0 on a ended with status 1; worker 1 on b had left its process group and still ran"
    assert said(tmp_path, ends) == fault


def test_a_node_that_an_event_took_away_is_not_to_blame(tmp_path: Path) -> None:
    ends = {"a": (1, "joined 2, ended 8.2"), "b": (-9, "joined 2, ended 3")}
    assert said(tmp_path, ends, away="b") == "worker 0 on a ended with status 1"


@pytest.mark.parametrize("marks", ["", "ended", "ended soon", "\0\0", "left nan", "left -inf", "left now"])
def test_marks_that_say_nothing_are_passed_over(marks: str, tmp_path: Path) -> None:
    assert said(tmp_path, {"a": (4, marks), "b": (None, "joined 2")}) == "worker 0 on a ended with status 4"


def test_marks_of_an_earlier_start_do_not_count(tmp_path: Path) -> None:
    box: Any = Box(tmp_path, "a")
    (tmp_path / "marks").write_text("started 1\njoined 2\nleft 3\nended 4\nstarted 5\n")
    process = AttendedProcess(box, tmp_path / "marks")
    assert (process.has_joined, process.left_s) == (False, None)
    with (tmp_path / "marks").open("a") as marks:
        marks.write("joined 6\nleft 7\njoined 8\n")  # as one that meets the others again
    assert (process.has_joined, process.left_s) == (True, None)


def test_marks_that_are_a_pipe_do_not_block(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "marks")
    box: Any = Box(tmp_path, "a")
    started_s = time.monotonic()
    assert AttendedProcess(box, tmp_path / "marks").left_s is None
    assert time.monotonic() - started_s < 60, "it waited for the other end of the pipe"


@pytest.mark.parametrize(
    ("code", "last", "found"),
    [(137, f"{NOTE}SIGKILL", -9), (137, "", 137), (255, "", 255), (1, "", 1), (0, "", 0), (None, "", None)],
)
def test_a_status_is_a_signals_where_the_first_process_says_so(
    code: int | None, last: str, found: int | None, tmp_path: Path
) -> None:
    box: Any = Box(tmp_path, "a")
    box.log.write_text(f"a line\n{last}\n")
    box.code = code
    assert AttendedProcess(box, tmp_path / "marks").exit_code() == found


def test_each_end_is_recorded_with_whether_it_joined(tmp_path: Path) -> None:
    scripts = Scripts(lambda _: tmp_path)
    for rank, (node, code, marks) in enumerate((("a", 0, "joined 1\n"), ("b", None, ""))):
        box: Any = Box(tmp_path, node)
        box.code = code
        scripts.attend(box, rank)
        (tmp_path / marks_name(rank)).write_text(marks)
    assert [(end.rank, end.joined, end.how) for end in scripts.ends()] == [
        (0, True, "ended with status 0"),
        (1, False, "was still running"),
    ]
