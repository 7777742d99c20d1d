"""Collectives in flight, and the error of one that fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from torch import Tensor

from testbed.core.errors import RunError
from testbed.worker.communication.transport import Waitable
from testbed.worker.device.accelerator import Accelerator


class CollectiveError(RunError):
    """A collective failed or took too long; the message names the rank, the collective and the step."""


class Issuer(Protocol):
    """Owner of a collective, which counts waits and names its errors."""

    accelerator: Accelerator

    def waiting(self) -> AbstractContextManager[None]: ...

    def error(self, what: str, cause: BaseException) -> CollectiveError: ...


class Pending:
    """A collective in flight. Its tensors must not be touched before `wait` returns."""

    def __init__(
        self,
        issuer: Issuer,
        what: str,
        work: Waitable | None,
        result: Callable[[], list[Tensor]],
        end: Callable[[], None],
    ) -> None:
        """Take the handle of a collective that was started.

        Args:
            what: Name of the collective, for messages.
            work: Handle to wait for; None: it is done.
            result: Function that returns the tensors, once it is done.
            end: Function that is called once it is done, before `result`.
        """
        self._issuer, self._what, self._work, self._result, self._end = issuer, what, work, result, end

    def then(self, change: Callable[[list[Tensor]], list[Tensor]]) -> Pending:
        """Return it with what `change` makes of its result once that is there."""
        result = self._result
        self._result = lambda: change(result())
        return self

    def wait(self) -> list[Tensor]:
        """Return the result, once it is there.

        On the training's clock the time until then is exposed communication, whatever phase is open.

        Raises:
            CollectiveError: The collective failed, or ran into the timeout.
        """
        with self._issuer.waiting():
            if self._work is not None:
                try:
                    self._work.wait()
                    self._issuer.accelerator.settle()  # NCCL's returns before anything has arrived
                except (RuntimeError, OSError) as error:
                    raise self._issuer.error(self._what, error) from error
            self._end()
        return self._result()
