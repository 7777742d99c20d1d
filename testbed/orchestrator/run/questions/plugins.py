"""Asks the worker's side whether it can build the plug-ins of a spec: the orchestrator never imports one."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testbed.core.errors import InputError, MachineError, RunError
from testbed.core.spec.run_spec import PARTS, RunSpec
from testbed.orchestrator.machine import clone
from testbed.orchestrator.terminal.terminal import say

TIME_LIMIT_S = 600.0
"""Importing torch takes seconds on a cold disk, and what a workload trains once on a machine minutes of a busy one; a
check that takes longer hangs."""
_SPEC_LIMIT_S = 30.0
"""Of each one more, where there are several."""
_TAIL_LINES = 8
_START_S = 60.0
"""Longest start of the process that answers, which imports torch."""
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


def check_parts(spec: RunSpec, time_limit_s: float = TIME_LIMIT_S, *, accelerated: bool = False) -> dict[str, Any]:
    """Run `python -m testbed.worker check` on the spec and return its answer: "parameters", "metric".

    Args:
        accelerated: ranks compute on accelerators.

    Raises:
        InputError: with every fault that the plug-ins report.
        MachineError: the worker's packages are not installed.
        RunError: the check itself broke.
    """
    question = {**spec.to_json(), **({"accelerated": True} if accelerated else {})}
    return _checked(question, lambda answer: [answer], time_limit_s)


def check_all(specs: Sequence[RunSpec]) -> list[dict[str, Any]]:
    """Likewise of several, in one process; each answer has its own "faults".

    Raises:
        MachineError, RunError: as of `check_parts`.
    """
    question = {"specs": [spec.to_json() for spec in specs]}
    time_limit_s = TIME_LIMIT_S + _SPEC_LIMIT_S * len(specs)
    found: list[dict[str, Any]] = _checked(question, lambda answer: answer["answers"], time_limit_s)["answers"]
    return found


def _checked(
    question: dict[str, Any], answers: Callable[[dict[str, Any]], list[dict[str, Any]]], time_limit_s: float
) -> dict[str, Any]:
    """Return the answer of a check; where data have to be fetched first, say which, and have them fetched."""
    answer = ask_worker("check", question, "plug-in check", time_limit_s)
    lacking = dict.fromkeys(one["to_fetch"] for one in answers(answer) if one.get("to_fetch"))
    if not lacking:
        return answer
    for line in lacking:
        say(line)
    return ask_worker("check", {**question, "fetch": True}, "plug-in check", time_limit_s)


def ask_worker(command: str, question: dict[str, Any], what: str, time_limit_s: float) -> dict[str, Any]:
    """The answer of `python -m testbed.worker COMMAND` to JSON on its standard input.

    Args:
        what: it does, for messages.

    Raises:
        InputError, MachineError, RunError: as of `check_parts`.
    """
    reply = _SERVER.reply(command, question, what, time_limit_s)
    answer = _answer(reply["answer"])
    if answer is None or reply["status"] not in (0, InputError.exit_status):
        if (at := _overdue_at(reply["log"])) is not None:
            raise RunError(f"{what}: took longer than {time_limit_s:g} s{_of(question)}, and was ended; it was {at}")
        raise _breakage(command, reply["status"], reply["log"], what)
    if answer["faults"]:
        raise InputError(*(str(fault) for fault in answer["faults"]))
    return answer


def end_questions() -> None:
    """Ends the process that answers them, and frees its memory; the next question starts another."""
    _SERVER.end()


class _QuestionServer:
    """`python -m testbed.worker question-server`, started with the first question; it ends with this process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log: int | None = None
        self._owner = 0
        """Process id of whoever started it; a fork of that process must not end it."""

    def reply(self, command: str, question: dict[str, Any], what: str, time_limit_s: float) -> dict[str, Any]:
        """{"status", "answer", "log"}; where the server itself ends, its status and what it said.

        Raises:
            RunError: not within `time_limit_s`; the process that answers ends itself before, and says where it was.
        """
        given = {**clone.environment(), "OMP_NUM_THREADS": "1"}
        asked: dict[str, Any] = {"command": command, "question": json.dumps(question), "environment": given}
        asked |= {"cwd": os.getcwd(), "limit_s": time_limit_s}
        try:
            line = self._exchanged(json.dumps(asked).encode() + b"\n", time_limit_s + min(_START_S, time_limit_s))
            if line is None:
                raise RunError(f"{what}: no answer within {time_limit_s:g} s from {_words(command)}")
            if line:
                found: dict[str, Any] = json.loads(line)
                return found
            assert self._process is not None and self._log is not None
            status = self._process.wait()
            log = os.pread(self._log, os.fstat(self._log).st_size, 0).decode(errors="replace")
        except BaseException:  # a later question would get this one's answer
            self.end()
            raise
        self.end()
        return {"status": status, "answer": "", "log": log}

    def _exchanged(self, asked: bytes, time_limit_s: float) -> bytes | None:
        """The line of the answer; empty where the server has ended, None where there is none within the limit."""
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(asked)
            process.stdin.flush()
            if not select.select([process.stdout], [], [], time_limit_s)[0]:
                return None
            return process.stdout.readline()
        return b""

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None and process.stdout is not None and self._is_own():
            process.kill()
            process.wait()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _is_own(self) -> bool:
        return self._owner == os.getpid()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._is_own() and self._process.poll() is None:
            return self._process
        self.end()
        self._owner = os.getpid()
        self._log = os.memfd_create("log of the question server")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "testbed.worker", "question-server", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": str(clone.CLONE), "OMP_NUM_THREADS": "1"},
        )
        return self._process


_SERVER = _QuestionServer()
atexit.register(_SERVER.end)


def _of(question: Mapping[str, Any]) -> str:
    """Return the words that name the parts of a question's spec, as far as it has one."""
    spec = question.get("spec", question)
    found = [f"{part}={spec[part]['name']}" for part in PARTS if isinstance(spec.get(part), dict)]
    return f" with {' '.join(found)}" if found else ""


def _overdue_at(log: str) -> str | None:
    """Return where a process was that ended itself after its time limit; None if it ended otherwise."""
    _, is_overdue, told = log.rpartition("Timeout (")
    stack = told.rpartition("(most recent call first):")[2]  # of the thread that began first
    frames = _FRAME.findall(stack) if is_overdue else []
    if not frames:
        return None
    own = [frame for frame in frames if not re.search(r"/lib/python[\d.]+/|^<", frame[0])]
    place, line, function = (own or frames)[0]
    return f"in {place}, line {line}, in {function}"


def _words(command: str) -> str:
    return f"{sys.executable} -m testbed.worker {command}"


def _answer(stdout: str) -> dict[str, Any] | None:
    """The last line that is an answer: a plug-in may print while it is imported."""
    for line in reversed(stdout.splitlines()):
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict) and isinstance(answer.get("faults"), list):
            return answer
    return None


def _breakage(command: str, status: int, log: str, what: str) -> MachineError | RunError:
    tail = [line for line in log.splitlines() if line.strip()][-_TAIL_LINES:]
    if tail and tail[-1].startswith("ModuleNotFoundError"):
        return MachineError(f"{what}: {tail[-1].partition(': ')[2]}: run make setup")
    said = "".join(f"\n    {line}" for line in tail) or " it said nothing"
    return RunError(f"{what}: {_words(command)} ended with status {status}:{said}")
