"""Questions to the analysis, in a process of its own, which answers as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from testbed.core.errors import InputError, RunError
from testbed.orchestrator.machine.clone import environment


def ask_analysis(*arguments: str, question: Any = None, time_limit_s: float) -> Any:
    """What `python -m testbed.analysis` answers to its arguments, and to a question on standard input.

    Raises:
        InputError: it cannot be answered; with every fault.
        RunError: no answer came.
    """
    what = arguments[0]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "testbed.analysis", *arguments],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            env=environment(),
            timeout=time_limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(f"{what}: no answer after {time_limit_s:g} s") from error
    if done.returncode == InputError.exit_status:
        raise InputError(*done.stderr.strip().splitlines())
    if done.returncode != 0:
        raise RunError(f"{what}: the analysis ended with status {done.returncode}: {done.stderr.strip()[-1000:]}")
    return json.loads(done.stdout)
