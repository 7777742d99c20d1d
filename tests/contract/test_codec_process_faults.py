"""What is no payload's fault, and calls that are cut short: named, and never another call's answer."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from compressors.parts.codec_process import CodecProcess, CodecProcessError
from tests.contract.hostile_codecs import BYTES, HOSTILE, is_there, pid_of
from tests.waiting import in_background, joined, wait_until


def test_an_encoder_that_dies_is_no_fault_of_a_payload(helper: CodecProcess) -> None:
    with pytest.raises(CodecProcessError, match=r"^crash could not encode 64 bytes: .*SIGSEGV"):
        helper.encode("crash", BYTES, 64)


def test_a_library_that_is_missing_is_named(helper: CodecProcess) -> None:
    with pytest.raises(CodecProcessError, match=r"cannot be loaded .*: ModuleNotFoundError: .*no_such_library"):
        helper.decode("absent", BYTES, 64)
    assert torch.equal(helper.decode("copy", BYTES, 64), BYTES)


class _Interrupted(Exception):
    """By a signal's handler, as KeyboardInterrupt is."""


@pytest.mark.tier("all")
def test_an_interrupted_calls_reply_is_not_taken_for_the_next_ones(helper: CodecProcess, script: Path) -> None:
    before = pid_of(helper)
    begun, go = (script.with_name(f"{script.name}.{what}") for what in ("begun", "go"))
    for file in (begun, go):
        file.unlink(missing_ok=True)

    def interrupt(*_: object) -> None:
        raise _Interrupted

    def interrupt_the_call() -> None:
        wait_until(begun.exists, "the helper to begin")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        interrupting = in_background(interrupt_the_call)
        with pytest.raises(_Interrupted):
            helper.decode("told", torch.zeros(64, dtype=torch.uint8), 64)
    finally:
        joined(interrupting)
        signal.signal(signal.SIGALRM, previous)
        go.touch()
    time.sleep(0.8)  # for the reply to come, if there is one
    assert torch.equal(helper.decode("work", BYTES, 64), BYTES)
    assert helper.pid != before and not is_there(before)


def test_a_reply_to_another_call_is_refused(tmp_path: Path) -> None:
    late = tmp_path / "late.py"
    late.write_text(HOSTILE.replace("child.start(", "child._answer = lambda *_: OLD\nchild.start(", 1))
    late.write_text(late.read_text().replace("OLD", '{"number": 0, "size": 64, "cpu_s": 0.0}'))
    helper = CodecProcess(late)
    with pytest.raises(CodecProcessError, match="copy_decode: reply 0 came to call 1 of the helper process"):
        helper.decode("copy", BYTES, 64)
    assert helper.pid is None


def test_a_machine_that_cannot_limit_it_is_no_fault_of_a_payload(tmp_path: Path) -> None:
    without_proc = tmp_path / "without_proc.py"
    refusing = 'def refuse(*_): raise FileNotFoundError(2, "no such file", "/proc/self/statm")\nchild._limit = refuse'
    without_proc.write_text(HOSTILE.replace("child.start(", f"{refusing}\nchild.start(", 1))
    helper = CodecProcess(without_proc)
    for call in (helper.decode, helper.encode):
        with pytest.raises(CodecProcessError, match=r"cannot limit itself on this machine: .*/proc/self/statm"):
            call("copy", BYTES, 64)
    helper.close()


@pytest.mark.parametrize(
    ("module", "name"), [(socket, "socketpair"), (os, "memfd_create"), (os, "pipe"), (subprocess, "Popen")]
)
def test_what_it_needs_and_does_not_get_is_named_and_nothing_leaks(
    helper: CodecProcess, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, f"no {name}")

    gc.collect()  # what other tests have left
    open_before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(module, name, refuse)
        with pytest.raises(CodecProcessError, match=f"cannot be started: .*no {name}"):
            helper.decode("copy", BYTES, 64)
    assert len(os.listdir("/proc/self/fd")) <= open_before
    assert torch.equal(helper.decode("copy", BYTES, 64), BYTES)


def test_memory_that_cannot_be_shared_is_no_fault_of_a_payload(
    helper: CodecProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_of(helper)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", refuse)
        with pytest.raises(CodecProcessError, match=r"no 128 bytes to share .*: .*no space"):
            helper.decode("copy", BYTES, 64)
    assert torch.equal(helper.decode("copy", BYTES, 64), BYTES)


def test_it_is_known_by_its_run(helper: CodecProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHAUL_RUN", "my-run")
    variables = Path(f"/proc/{pid_of(helper)}/environ").read_bytes().split(b"\0")
    assert b"LONGHAUL_RUN=my-run" in variables
    assert not any(variable.startswith(b"PATH=") for variable in variables)
