"""Verdict of a run over time, asked of the program that judges runs, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import weakref
from typing import Any

from testbed.core.errors import RunError
from testbed.core.record.run_directory import RunDir

_JUDGE = (sys.executable, "-m", "testbed.orchestrator.observation.verdict")


class VerdictClient:
    """Asks a judge that keeps what it has read of each run. It is started when it is asked first."""

    def __init__(self, command: tuple[str, ...] = _JUDGE) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def over_time(self, run: RunDir) -> dict[str, Any]:
        """Return {"changes": [[t_s, verdict, reasons], ...], "end_s": time of the last event}.

        Raises:
            RunError: The run cannot be judged.
        """
        with self._lock:
            try:
                answer = self._ask(str(run.path))
            except (OSError, ValueError) as error:
                self.close()
                raise RunError(f"verdict over time: the judge gave no answer: {error}") from error
        if "fault" in answer:
            raise RunError(f"verdict over time: {answer['fault']}")
        return answer

    def _ask(self, path: str) -> dict[str, Any]:
        if self._process is None or self._process.poll() is not None:
            self._process = self._started()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(path) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def _started(self) -> subprocess.Popen[str]:
        # It ends with its standard input, hence with this process, whichever thread started it.
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process: subprocess.Popen[str] = subprocess.Popen(self._command, **pipes, text=True, start_new_session=True)
        weakref.finalize(self, _end, process)
        return process

    def close(self) -> None:
        """End the judge."""
        if self._process is not None:
            _end(self._process)
            self._process = None


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was not read by the judge cannot be flushed
                pipe.close()
