"""Ranks of tests, forked from one process that has loaded torch, as a run's workers are: it takes each of them seconds
to do so, and there are hundreds."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

PRELOADED = "tests.distributed.preloaded"
STOPS_AFTER = "TEST_STOPS_AFTER"
"""Environment variable: steps of a training after which the process stops itself."""
_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload([PRELOADED])


class Forked:
    """`python SCRIPT ARGUMENT...`, with what of `subprocess.Popen` tests use.

    Args:
        environment: the whole of it.
        log: to which all it says is added; without one, `communicate` tells.
    """

    def __init__(
        self,
        script: Path,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str],
        cwd: Path,
        log: Path | None = None,
    ) -> None:
        self._said: list[Path] = []
        if log is None:
            for _ in range(2):
                descriptor, name = tempfile.mkstemp()
                os.close(descriptor)
                self._said.append(Path(name))
        files = self._said or [log, log]
        given = (str(script), list(arguments), dict(environment), str(cwd), *map(str, files))
        self._process = _FORKING.Process(target=_live, args=given, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """
        Raises:
            subprocess.TimeoutExpired: it goes on.
        """
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """What it has said on standard output and error once it has ended; to be asked for once, unless in vain."""
        self.wait(timeout)
        found = [path.read_bytes() if path.exists() else b"" for path in self._said]
        for path in self._said:
            path.unlink(missing_ok=True)
        out, error = found
        return out, error

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _live(script: str, arguments: list[str], environment: dict[str, str], cwd: str, out: str, error: str) -> NoReturn:
    """The child's whole life. No interpreter is taken down, since threads of gloo may still come back to it."""
    status = 1
    try:
        for path, descriptor in ((out, 1), (error, 2)):
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(file, descriptor)
            os.close(file)
        assert PRELOADED in sys.modules, "nothing was loaded beforehand: each rank would import torch by itself"
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(cwd)
        sys.path[:0] = environment.get("PYTHONPATH", "").split(":")
        sys.argv = [script, *arguments]
        _start_over()
        _stop_after({int(step) for step in environment.get(STOPS_AFTER, "").split()})
        _play_main(script)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _play_main(script: str) -> None:
    """As `runpy` does, but what the script leaves stays: a group of gloo that is taken down waits for its threads, and
    holds the lock that these may wait for."""
    module = types.ModuleType("__main__")
    module.__file__ = script
    sys.modules["__main__"] = module
    exec(compile(Path(script).read_text(), script, "exec", dont_inherit=True), module.__dict__)


def _stop_after(steps: Set[int]) -> None:
    """Have this process stop itself after these steps, counted from 1, each of which it has told by then."""
    from testbed.worker.training import loop

    after = loop.Training._after

    def stopping(self: loop.Training, step: int, t_s: float, *, is_due: bool) -> None:
        after(self, step, t_s, is_due=is_due)
        if step + 1 in steps:
            os.kill(os.getpid(), signal.SIGSTOP)

    if steps:
        loop.Training._after = stopping  # type: ignore[method-assign]


def _start_over() -> None:
    """What nobody has seeded draws other numbers in each."""
    import random

    import numpy as np
    import torch

    tempfile.tempdir = None
    random.seed()
    np.random.seed()
    torch.default_generator.seed()
