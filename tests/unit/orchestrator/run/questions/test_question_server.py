"""Questions to the worker's side: one process imports torch for all of them, each has a fork of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.core.errors import InputError, RunError
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.run.questions import plugins
from testbed.orchestrator.run.questions.plugins import check_parts, end_questions
from tests.emulation.support import wait_until

pytestmark = pytest.mark.tier("all")  # each question that kills its server costs an import of torch
MINE = """
import os
from compressors.none import Uncompressed

class Mine(Uncompressed):
    def __init__(self, *, limit=1.0, feedback="auto"):
        super().__init__(feedback=feedback)
        if limit > {limit}:
            raise ValueError(f"limit={{limit}}: must be at most {limit}")
        if limit < 0:
            os.kill(os.getpid(), 9)
"""


@pytest.fixture(autouse=True, scope="module")
def _ended() -> Iterator[None]:
    end_questions()
    yield
    end_questions()


def _spec(limit: float) -> RunSpec:
    return replace(resolve(["topo=lan", "workload=sensors", "dilation=1"]).spec, compressor=_part(limit))


def _part(limit: float) -> Part:
    return Part("mine", "mine.Mine", {"limit": limit})


def _server() -> int:
    process = plugins._SERVER._process
    assert process is not None
    return process.pid


def test_each_question_sees_the_modules_of_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = set()
    for limit in (1.0, 2.0):
        folder = tmp_path / str(limit)
        folder.mkdir()
        (folder / "mine.py").write_text(MINE.format(limit=limit))
        monkeypatch.chdir(folder)
        assert check_parts(_spec(limit))["parameters"] > 0
        with pytest.raises(InputError, match=f"must be at most {limit}"):
            check_parts(_spec(limit + 1))
        servers.add(_server())
    assert len(servers) == 1
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="mine"):
        check_parts(_spec(1.0))


def test_what_ends_an_answer_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MINE.format(limit=1.0))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="ended with status -9"):
        check_parts(_spec(-1.0))
    server = _server()
    assert check_parts(_spec(1.0))["parameters"] > 0 and _server() == server


HANGS = """
import time
from compressors.none import Uncompressed

def wait():
    time.sleep(900)

class Mine(Uncompressed):
    def __init__(self):
        super().__init__()
        wait()
"""
SPINS = HANGS.replace("time.sleep(900)", "sum(range(10**12))")


@pytest.mark.parametrize("text", [HANGS, SPINS])
def test_a_plugin_that_hangs_is_ended_and_its_line_is_named(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    check_parts(resolve(["topo=lan", "workload=sensors", "dilation=1"]).spec)  # torch is imported
    spec = replace(_spec(1.0), compressor=Part("mine", "mine.Mine"))
    parts = "workload=sensors strategy=ddp compressor=mine device=native transform=none"
    where = rf"it was in {tmp_path}/mine\.py, line 6, in wait"
    with pytest.raises(RunError, match=rf"plug-in check: took longer than 3 s with {parts}, and was ended; {where}"):
        check_parts(spec, 3.0)
    assert check_parts(replace(spec, compressor=Part("none", "compressors.none.Uncompressed")))["parameters"] > 0


def test_a_server_that_is_killed_is_named_and_the_next_question_starts_another() -> None:
    plain = resolve(["topo=lan", "workload=sensors", "dilation=1"]).spec
    check_parts(plain)
    server = _server()
    os.kill(server, signal.SIGSTOP)
    with pytest.raises(RunError, match=r"no answer within 0\.1 s from .*testbed\.worker check"):
        check_parts(plain, 0.1)
    assert not Path(f"/proc/{server}").exists()
    assert check_parts(plain)["parameters"] > 0


def test_it_ends_with_whoever_asked() -> None:
    script = (
        "import os\n"
        "from testbed.orchestrator.config.config import resolve\n"
        "from testbed.orchestrator.run.questions import plugins\n"
        "plugins.check_parts(resolve(['topo=lan', 'workload=sensors', 'dilation=1']).spec)\n"
        "print(plugins._SERVER._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    server = Path(f"/proc/{int(done.stdout)}")
    wait_until(
        lambda: not server.exists() or "Z" in (server / "stat").read_text(), 60, "the end of the question server"
    )
