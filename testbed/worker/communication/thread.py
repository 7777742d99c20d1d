"""The thread in which Longhaul's own collectives run, one after another."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import torch
from torch import Tensor

from testbed.worker.device.run_queue import COLLECTIVES

Work = Callable[[], list[Tensor]]


class Job:
    """A collective that waits for its turn, runs, or has ended."""

    def __init__(self, work: Work, end: Callable[[], None]) -> None:
        self._work: Work | None = work
        self._end, self._ended = end, threading.Event()
        self._result: list[Tensor] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        assert self._work is not None
        try:
            with torch.no_grad():
                self._result = self._work()
        except BaseException as error:  # it belongs to whoever waits
            self.error = error
        self.finish()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.finish()

    def finish(self) -> None:
        self._work = None  # it holds tensors
        self._end()
        self._ended.set()

    def wait(self) -> None:
        """Wait for the end of the collective.

        Raises:
            RuntimeError: It failed; raised by gloo.
        """
        self._ended.wait()
        if self.error is not None:
            raise self.error

    def result(self) -> list[Tensor]:
        return self._result


class CommunicationThread:
    """Thread that runs jobs in order, begun with the first one.

    Once one has failed, no rank knows what others have sent: all others fail.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: Job) -> Job:
        if self._thread is None:
            # A daemon: a collective that never ends must not keep the process.
            self._thread = threading.Thread(target=self._run, name=COLLECTIVES, daemon=True)
            self._thread.start()
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """End once all jobs have."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _run(self) -> None:
        broken: BaseException | None = None
        while (job := self._jobs.get()) is not None:
            if broken is None:
                job.run()
                broken = job.error
            else:
                job.fail(broken)
            del job  # it holds tensors, and the next one may be long in coming
