"""Asks the worker's side whether it can build the plug-ins of a spec: the orchestrator never imports one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from testbed.core.errors import InputError, MachineError, RunError
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.machine.clone import environment

TIME_LIMIT_S = 600.0
"""Importing torch takes seconds on a cold disk, and what a workload trains once on a machine minutes of a busy one; a
check that takes longer hangs."""
_SPEC_LIMIT_S = 30.0
"""Of each one more, where there are several."""
_TAIL_LINES = 8


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
    return ask_worker("check", question, "plug-in check", time_limit_s)


def check_all(specs: Sequence[RunSpec]) -> list[dict[str, Any]]:
    """Likewise of several, in one process; each answer has its own "faults".

    Raises:
        MachineError, RunError: as of `check_parts`.
    """
    question = {"specs": [spec.to_json() for spec in specs]}
    answer = ask_worker("check", question, "plug-in check", TIME_LIMIT_S + _SPEC_LIMIT_S * len(specs))
    found: list[dict[str, Any]] = answer["answers"]
    return found


def ask_worker(command: str, question: dict[str, Any], what: str, time_limit_s: float) -> dict[str, Any]:
    """The answer of `python -m testbed.worker COMMAND` to JSON on its standard input.

    Args:
        what: it does, for messages.

    Raises:
        InputError, MachineError, RunError: as of `check_parts`.
    """
    words = [sys.executable, "-m", "testbed.worker", command]
    try:
        done = subprocess.run(
            words,
            input=json.dumps(question),
            capture_output=True,
            text=True,
            env={**environment(), "OMP_NUM_THREADS": "1"},
            timeout=time_limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(f"{what}: no answer within {time_limit_s:g} s from {' '.join(words)}") from error
    answer = _answer(done.stdout)
    if answer is None or done.returncode not in (0, InputError.exit_status):
        raise _breakage(words, done, what)
    if answer["faults"]:
        raise InputError(*(str(fault) for fault in answer["faults"]))
    return answer


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


def _breakage(command: list[str], done: subprocess.CompletedProcess[str], what: str) -> MachineError | RunError:
    tail = [line for line in done.stderr.splitlines() if line.strip()][-_TAIL_LINES:]
    if tail and tail[-1].startswith("ModuleNotFoundError"):
        return MachineError(f"{what}: {tail[-1].partition(': ')[2]}: run make setup")
    said = "".join(f"\n    {line}" for line in tail) or " it said nothing"
    return RunError(f"{what}: {' '.join(command)} ended with status {done.returncode}:{said}")
