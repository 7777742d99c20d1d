"""What a C codec does to hostile bytes ends in its helper process: an error by name, soon, and the next call works."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from compressors.base.payload import PayloadError
from compressors.parts import codec_process
from compressors.parts.codec_process import CodecProcess, CodecProcessError
from tests.contract.hostile_codecs import BYTES, is_there, pid_of, runs, wait_until_gone
from tests.waiting import in_background, joined

ROOT = Path(__file__).resolve().parents[2]
HANG_S = 100.0
"""A third of the wall seconds after which a call is given up, and far more than starting a helper takes."""


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        ("allocate", r"^allocate payload of 64 bytes for 64: MemoryError"),
        ("crash", r"ended the process that ran it \(SIGSEGV\); 5 CPU seconds and 96 MiB were allowed$"),
        ("abort", r"ended the process that ran it \(SIGABRT\)"),
        ("leave", r"ended the process that ran it \(exit status 0\)"),
        ("brief", r"decodes to 1 bytes, expected 64$"),
    ],
)
def test_what_a_decoder_does_ends_in_a_named_error(helper: CodecProcess, codec: str, message: str) -> None:
    before, started_s = pid_of(helper), time.monotonic()
    with pytest.raises(PayloadError, match=message):
        helper.decode(codec, BYTES, 64)
    assert time.monotonic() - started_s < HANG_S
    assert torch.equal(helper.decode("copy", BYTES, 64), BYTES)
    assert (helper.pid == before) == (codec in ("allocate", "brief"))
    assert helper.pid == before or not is_there(before)


def test_a_decoder_that_never_returns_is_ended_by_its_cpu_time(
    helper: CodecProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(codec_process, "DECODE_CPU_S", 0.3)
        with pytest.raises(PayloadError, match=r"\(SIGPROF\)"):
            helper.decode("spin", BYTES, 64)
    assert torch.equal(helper.decode("copy", BYTES, 64), BYTES)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_decoder_that_sleeps_is_ended_by_the_wall(
    helper: CodecProcess, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    before = pid_of(helper)
    if stopped:
        os.kill(before, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(codec_process, "DECODE_CPU_S", 0.2)
        patch.setattr(codec_process, "WALL_FACTOR", 4)
        with pytest.raises(PayloadError, match=r"no answer within 0.8|\(SIGALRM\)"):
            helper.decode("wait", BYTES, 64)
    assert not is_there(before)
    assert torch.equal(helper.decode("copy", BYTES, 64), BYTES)


def test_one_that_was_ended_between_calls_is_replaced(helper: CodecProcess) -> None:
    before = pid_of(helper)
    os.kill(before, signal.SIGKILL)
    assert wait_until_gone(before, HANG_S)
    assert torch.equal(helper.decode("copy", BYTES, 64), BYTES)
    assert not is_there(before)


def test_one_that_cannot_start_says_so(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(3)")
    with pytest.raises((CodecProcessError, PayloadError), match="exit status 3"):
        CodecProcess(broken).decode("copy", BYTES, 64)


def test_the_interpreter_goes_on_meanwhile(helper: CodecProcess, script: Path) -> None:
    """The codec waits for a file that this thread makes."""
    file = script.with_name(f"{script.name}.go")
    file.unlink(missing_ok=True)
    pid_of(helper)
    thread = in_background(lambda: helper.decode("told", BYTES, 64), "of the call")
    file.touch()
    joined(thread, limit_s=HANG_S)


def test_its_cpu_time_is_counted(helper: CodecProcess) -> None:
    helper.decode("work", BYTES, 64)
    assert 0.4 <= helper.cpu_s < 2


def test_threads_take_turns(helper: CodecProcess) -> None:
    wrong: list[int] = []

    def ask(number: int) -> None:
        data = torch.full((5000 + number,), number, dtype=torch.uint8)
        wrong.extend(n for n in range(20) if not torch.equal(helper.decode("copy", data, len(data)), data))

    joined(*(in_background(functools.partial(ask, number)) for number in range(4)))
    assert not wrong


def test_a_fork_has_a_helper_of_its_own() -> None:
    values = torch.linspace(-1, 1, 500)
    stream = codec_process.encode("sz3", values, 4096, algorithm=3, bound=0.01)
    parents = codec_process._ours.pid
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            codec_process.decode("sz3", stream, 2000)
            os.write(writing, str(codec_process._ours.pid).encode())
            status = 0
        os._exit(status)
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    childs = int(os.read(reading, 100))
    os.close(reading)
    assert childs != parents and wait_until_gone(childs, HANG_S)
    codec_process.decode("sz3", stream, 2000)
    assert codec_process._ours.pid == parents


@pytest.mark.tier("all")
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("thread", [False, True])
def test_it_ends_with_a_parent_that_is_killed(script: Path, busy: bool, thread: bool) -> None:
    program = f"""
        import sys, threading
        from pathlib import Path
        import torch
        from compressors.parts.codec_process import CodecProcess
        helper, data = CodecProcess(Path({str(script)!r})), torch.zeros(8, dtype=torch.uint8)
        def begin():
            helper.decode("copy", data, 8)
            print(helper.pid, flush=True)
        if {thread}:
            beginner = threading.Thread(target=begin)
            beginner.start()
            beginner.join()
        else:
            begin()
        if {busy}:
            helper.decode("wait", data, 8)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)}
    ) as parent:
        assert parent.stdout is not None
        helper = int(parent.stdout.readline())
        assert runs(helper)
        time.sleep(0.2)
        parent.kill()
    assert wait_until_gone(helper, HANG_S)


def test_the_users_variables_play_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(9)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "numpy.py"))
    monkeypatch.setenv("BLOSC_CLEVEL", "9")
    monkeypatch.chdir(tmp_path)
    helper = CodecProcess()
    parameters = {"codec": "zstd", "shuffle": 1, "level": 1}
    values = torch.linspace(-1, 1, 5000)
    stream = helper.encode("blosc2", values, 30_000, **parameters)
    assert torch.equal(helper.decode("blosc2", stream, 20_000).view(torch.float32), values)
    helper.close()


def test_an_sz3_stream_that_asks_for_16_gib_is_refused() -> None:
    values = torch.randn(5760, generator=torch.Generator().manual_seed(0))
    stream = codec_process.encode("sz3", values, 40_000, algorithm=0, bound=0.5)
    stream[20] = 4  # of the size that its lossless stage is to come to
    with pytest.raises(PayloadError, match=r"can not allocate|MemoryError"):
        codec_process.decode("sz3", stream, 4 * 5760)


def test_a_zstd_stream_that_decodes_to_more_than_asked_is_refused() -> None:
    bomb = codec_process.encode("zstd", torch.zeros(1 << 24, dtype=torch.uint8), 1 << 20, level=19, planes=1)
    assert len(bomb) < 4096
    with pytest.raises(PayloadError, match="zstd payload"):
        codec_process.decode("zstd", bomb, 1000, planes=1)


@pytest.mark.parametrize("claimed", [4, 4000, 1 << 20])
def test_streams_of_another_size_are_refused(claimed: int) -> None:
    values = torch.randn(500, generator=torch.Generator().manual_seed(0))
    for codec, encoding, decoding in (
        ("sz3", {"algorithm": 3, "bound": 0.1}, {}),
        ("zfp", {"mode": "precision", "value": 10}, {}),
        ("zstd", {"level": 1, "planes": 4}, {"planes": 4}),
        ("blosc2", {"codec": "zstd", "shuffle": 1, "level": 1}, {}),
    ):
        stream = codec_process.encode(codec, values, 40_000, **encoding)
        with pytest.raises(PayloadError, match=f"^{codec} payload"):
            codec_process.decode(codec, stream, claimed, **decoding)
