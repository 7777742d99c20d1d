"""Rank 0's output on the terminal, and the files that a script wrote, in the run's directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import RunError
from testbed.orchestrator.emulation.containers.node_disk import CHANGES, NodeDisk
from testbed.orchestrator.run.script_output import MAX_BEHIND_BYTES, MAX_LINE, LiveOutput, keep


def test_output_is_shown_line_by_line_as_it_comes(tmp_path: Path) -> None:
    log, shown = tmp_path / "logs" / "a.log", list[str]()
    log.parent.mkdir()
    output = LiveOutput("a", log, shown.append)
    output.begin()
    assert str(log.parent) in shown.pop()
    output.poll()  # there is no log yet
    with log.open("ab", buffering=0) as file:
        file.write("step 1\nstép".encode())
        output.poll()
        assert shown == ["[a] step 1"]
        file.write(b" 2\n\n10%\r20%\r\nlast")
        output.poll()
    assert shown[1:] == ["[a] stép 2", "[a] 10%", "[a] 20%"]
    output.end()
    output.end()
    assert shown[4:] == ["[a] last"]


def test_a_log_whose_middle_was_cut_goes_on_from_its_last_lines(tmp_path: Path) -> None:
    log, shown = tmp_path / "a.log", list[str]()
    log.write_bytes(b"x\n" * 50_000)
    output = LiveOutput("a", log, shown.append)
    output.poll()
    log.write_bytes(b"x\n" * 40_000 + b"the end\n")
    output.poll()
    assert "the log was cut" in shown[50_000] and shown[-1] == "[a] the end"
    assert len(shown) < 60_000


def test_a_flood_of_output_is_passed_over_and_said(tmp_path: Path) -> None:
    log, shown = tmp_path / "a.log", list[str]()
    log.write_bytes(b"x" * (MAX_LINE + 1) + b"\n" + b"line\n" * MAX_BEHIND_BYTES + b"the end\n")
    output = LiveOutput("a", log, shown.append)
    output.end()
    assert "of output are not shown" in shown[0] and shown[-1] == "[a] the end"
    assert sum(map(len, shown)) < MAX_BEHIND_BYTES
    log.write_bytes(log.read_bytes() + b"y" * (MAX_LINE + 1) + b"\n")
    output.poll()
    assert shown[-1] == f"[a] {'y' * MAX_LINE}..."


class Box:
    """A container that has ended."""

    def __init__(self, disk: Any) -> None:
        self.disk = disk

    def kill(self) -> None:
        pass

    def wait(self, timeout_s: float) -> None:
        pass


def _disk(folder: Path) -> NodeDisk:
    """A disk without its mounts."""
    disk = NodeDisk.__new__(NodeDisk)
    disk.out, disk._changes = folder / "out", folder / "changes"
    disk.out.mkdir(parents=True)
    disk._changes.mkdir()
    return disk


def test_what_was_written_is_kept(tmp_path: Path) -> None:
    disk = _disk(tmp_path / "disk")
    (disk.out / "metrics.csv").write_text("1,2\n")
    (disk.out / CHANGES).write_text("a file of this name")
    (disk._changes / "checkpoints").mkdir()
    (disk._changes / "checkpoints" / "1.pt").write_bytes(b"weights")
    (disk._changes / "latest").symlink_to("/etc/passwd")
    os.mkfifo(disk._changes / "pipe")
    with (disk._changes / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 30)
        file.write(b"middle")
    boxes: Any = {"a": Box(disk), "b": Box(_disk(tmp_path / "other")), "c": Box(None)}
    target = tmp_path / "run" / "out"
    assert keep(boxes, target) == target
    kept = {str(path.relative_to(target)) for path in target.rglob("*")}
    changes = f"a/{CHANGES}_"
    assert kept == {
        *("a", "a/metrics.csv", f"a/{CHANGES}", changes),
        *(f"{changes}/checkpoints", f"{changes}/checkpoints/1.pt", f"{changes}/latest", f"{changes}/sparse"),
    }
    assert (target / changes / "latest").is_symlink()
    sparse = (target / changes / "sparse").stat()
    assert sparse.st_size == 1 << 40 and sparse.st_blocks * 512 < 1 << 20


def test_nothing_is_kept_where_nothing_was_written(tmp_path: Path) -> None:
    boxes: Any = {"a": Box(_disk(tmp_path / "disk"))}
    assert keep(boxes, tmp_path / "out") is None
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), RecursionError("too deep")])
def test_what_cannot_be_kept_is_a_fault_that_names_the_node(fault: Exception, tmp_path: Path) -> None:
    class Full:
        def keep(self, target: Path) -> None:
            raise fault

    boxes: Any = {"a": Box(Full())}
    with pytest.raises(RunError, match="node a: what the script wrote cannot be kept"):
        keep(boxes, tmp_path / "out")
