"""A sweep as a process that can be killed, and the runs that it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from testbed.core.record.run_directory import RUN_ID, RunDir
from testbed.orchestrator.machine.clone import CLONE, environment
from tests.machine import ENDS_WITH_TESTS

LONGHAUL_SWEEP = ("testbed", "sweep")


class Sweep:
    """`longhaul sweep ...` as a process in a session of its own."""

    def __init__(
        self,
        runs: Path,
        *words: str,
        program: tuple[str, ...] = LONGHAUL_SWEEP,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            program: a module and its first words.
            environ: the environment of this tree's programs if None.
        """
        self.runs = runs
        self._output = runs.parent / f"output-{time.time_ns()}"
        with self._output.open("w") as file:
            self.process = subprocess.Popen(
                [*ENDS_WITH_TESTS, sys.executable, "-m", *program, "--runs", str(runs), *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=CLONE,
                env=environment() if environ is None else dict(environ),
            )

    @property
    def said(self) -> str:
        return self._output.read_text()

    def wait_until(self, met: Callable[[], bool], limit_s: float) -> None:
        deadline_s = time.monotonic() + limit_s
        while not met():
            assert self.process.poll() is None, f"the sweep ended:\n{self.said}"
            assert time.monotonic() < deadline_s, f"not within {limit_s:.0f} s:\n{self.said}"
            time.sleep(0.05)

    def kill(self) -> None:
        """As `kill -9` does: this process alone."""
        self.process.kill()
        self.process.wait()

    def signal_group(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def wait(self, limit_s: float) -> int:
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.signal_group(signal.SIGKILL)
            raise AssertionError(f"the sweep did not end within {limit_s:.0f} s:\n{self.said}") from None

    def points(self) -> list[dict[str, Any]]:
        """What its results say of each."""
        (results,) = (self.runs / ".sweeps").glob("*/results.json")
        points: list[dict[str, Any]] = json.loads(results.read_text())["points"]
        return points


def found(runs: Path) -> list[RunDir]:
    """All that are there, ended or not."""
    paths = sorted(runs.iterdir()) if runs.exists() else []
    return [RunDir(path) for path in paths if RUN_ID.fullmatch(path.name)]


def hash_of(run: RunDir) -> str:
    text: str = json.loads(run.spec.read_text())["hash"]
    return text


def summaries(runs: Path) -> dict[str, dict[str, Any]]:
    """Of the runs that have ended, by their ids."""
    return {run.run_id: json.loads(run.summary.read_text()) for run in found(runs) if run.summary.exists()}


def counted(runs: Path) -> list[str]:
    """The hashes of those that count, which nobody makes again: completed and not `invalid`."""
    ended = summaries(runs)
    return [
        hash_of(run)
        for run in found(runs)
        if run.run_id in ended and ended[run.run_id]["verdict"] in ("valid", "suspect")
    ]
