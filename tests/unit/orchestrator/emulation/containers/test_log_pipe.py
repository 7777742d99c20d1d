"""The log of a container keeps head and tail of what was printed, says what it cut, and is no file of the container."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.orchestrator.emulation.containers import log_pipe
from testbed.orchestrator.emulation.containers.log_pipe import CappedFile, LogPipe, RateLimit

HEAD, TAIL = 1000, 100


@pytest.mark.parametrize("piece_bytes", [1, 7, 64, 999, 5000])
@pytest.mark.parametrize("total_bytes", [0, 999, 1000, 1001, 1199, 1200, 1201, 20_000])
def test_head_and_tail_are_kept_and_the_cut_is_said(tmp_path: Path, total_bytes: int, piece_bytes: int) -> None:
    path, data = tmp_path / "log", bytes(65 + at % 26 for at in range(total_bytes))
    file = CappedFile(path, HEAD, TAIL)
    for at in range(0, total_bytes, piece_bytes):
        file.write(data[at : at + piece_bytes])
        kept = path.read_bytes()
        assert kept.endswith(data[: at + piece_bytes][-TAIL:]), "at any time the last words are there"
    file.close()
    kept = path.read_bytes()
    assert kept[:HEAD] == data[:HEAD] and len(kept) <= HEAD + 2 * TAIL + 100
    cut = re.search(rb"\n\[longhaul: (\d+) bytes of output are cut here\]\n", kept)
    if total_bytes <= HEAD + 2 * TAIL:
        assert kept == data and cut is None
    elif cut is not None:
        assert len(kept) - len(cut[0]) + int(cut[1]) == total_bytes


def test_a_node_that_comes_back_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for size_bytes in (HEAD + TAIL, TAIL):
        file = CappedFile(path, HEAD, TAIL)
        file.write(b"x" * size_bytes)
        file.close()
    assert path.read_bytes() == b"x" * (HEAD + 2 * TAIL)


def test_a_log_is_never_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / "log").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        CappedFile(tmp_path / "log")
    assert (tmp_path / "other").read_text() == "kept"


def test_a_rate_is_kept_over_time() -> None:
    limit = RateLimit(rate_byte_s=100.0, burst_bytes=1000.0, now_s=0.0)
    assert limit.wait_s(1000, 0.0) == 0.0
    assert limit.wait_s(50, 0.0) == 0.5
    assert limit.wait_s(0, 0.5) == 0.0
    assert limit.wait_s(200, 1.5) == 1.0
    assert RateLimit(100.0, 1000.0, 0.0).wait_s(1000, 1e6) == 0.0, "what was not used does not add up"


def test_what_processes_print_is_in_the_log_and_the_log_is_not_theirs(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogPipe(path)
    tries = "\n".join(
        (
            "import os, stat",
            "for attempt in (lambda: os.posix_fallocate(1, 0, 1 << 20), lambda: os.ftruncate(1, 1 << 20)):",
            "    try: attempt(); print('done')",
            "    except OSError as error: print(error.strerror)",
            "print(stat.S_ISFIFO(os.fstat(1).st_mode))",
        )
    )
    for code in (tries, "print('of a second process')"):
        subprocess.run([sys.executable, "-c", code], stdout=log.open(), stderr=log.open(), check=True)
        log.settle()
    assert path.read_text().splitlines() == ["Illegal seek", "Invalid argument", "True", "of a second process"]
    found = path.stat()
    assert stat.S_IMODE(found.st_mode) & 0o7133 == 0 and found.st_uid == os.geteuid()
    log.close()
    log.close()


def test_a_flood_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pipe, "RATE_BYTE_S", 1 << 40)
    log = LogPipe(tmp_path / "log")
    code = "import os\nfor _ in range(320): os.write(1, b'x' * (1 << 17))\nos.write(1, b'the last words')"
    subprocess.run([sys.executable, "-c", code], stdout=log.open(), check=True)
    log.close()
    kept = (tmp_path / "log").read_bytes()
    assert len(kept) < log_pipe.HEAD_BYTES + 2 * log_pipe.TAIL_BYTES + 100
    assert kept.endswith(b"the last words") and b"bytes of output are cut here" in kept
