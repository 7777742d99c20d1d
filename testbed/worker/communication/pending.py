"""A collective under way, and what is raised where it fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from torch import Tensor

from testbed.core.errors import RunError
from testbed.worker.communication.transport import Waitable
from testbed.worker.device.accelerator import Accelerator


class CollectiveError(RunError):
    """A collective failed or took too long; says on which rank, which one, in which step."""


class Issuer(Protocol):
    """Whose collective it is."""

    accelerator: Accelerator

    def waiting(self) -> AbstractContextManager[None]: ...

    def error(self, what: str, cause: BaseException) -> CollectiveError: ...


class Pending:
    """A collective under way. Its tensors must not be touched before `wait` returns."""

    def __init__(
        self,
        issuer: Issuer,
        what: str,
        work: Waitable | None,
        result: Callable[[], list[Tensor]],
        end: Callable[[], None],
    ) -> None:
        """
        Args:
            what: of it, for messages.
            work: None: it is done.
            result: what has come of it, once it is.
            end: is called once it is, before `result`.
        """
        self._issuer, self._what, self._work, self._result, self._end = issuer, what, work, result, end

    def wait(self) -> list[Tensor]:
        """Return the result, once it is there. On the training's clock the time until then is exposed communication,
        whatever phase is open.

        Raises:
            CollectiveError: it failed, or ran into the timeout.
        """
        with self._issuer.waiting():
            if self._work is not None:
                try:
                    self._work.wait()
                    self._issuer.accelerator.settle()  # NCCL's returns before anything has arrived
                except RuntimeError as error:
                    raise self._issuer.error(self._what, error) from error
            self._end()
        return self._result()
