"""Evaluation beside training: of a copy, in a thread that yields to all others."""

from __future__ import annotations

import copy
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor, nn

from testbed.core.errors import RunError
from testbed.core.record.events.run import Evaluation
from testbed.worker.interfaces.workload import Workload

_NICE = 19


class Evaluations:
    """Evaluates what the model was at the steps asked for, one after another, and tells of each when it is ready.

    Training stands still for the snapshot alone, one copy of the model, so that no rank waits for an evaluation inside
    its step. What comes due while another is going on queues up, and none is dropped: the results of a run must not
    depend on how fast the machine is. Evaluation is free: it takes no emulated time, whatever the dilation.
    """

    def __init__(self, workload: Workload, model: nn.Module, emit: Callable[[dict[str, Any]], None]) -> None:
        assert workload.metric is not None, f"{type(workload).__name__} has no metric to evaluate"
        self._workload, self._model, self._emit = workload, model, emit
        self._name = workload.metric.name
        self._twin = copy.deepcopy(model).cpu()  # evaluations leave an accelerator to the training
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="evaluation", initializer=_yield_to_all)
        self._going: deque[Future[None]] = deque()

    def rehearse(self) -> None:
        """Do once, and wait for, what the first evaluation would have to load."""
        self._pool.submit(self._value).result()

    def start(self, step: int, t_s: float) -> None:
        """Take a snapshot and evaluate it later.

        Args:
            step: counted from 1.
            t_s: when the model became what it is.
        """
        self._raise_failed()
        snapshot = [tensor.detach().clone() for tensor in _tensors(self._model)]
        self._going.append(self._pool.submit(self._evaluate, step, t_s, snapshot))

    def finish(self, timeout_s: float) -> None:
        """Wait until all have been told.

        Raises:
            RunError: one is not ready after `timeout_s` wall seconds.
        """
        unready = wait(self._going, timeout=timeout_s).not_done
        self._raise_failed()
        if unready:
            raise RunError(f"{len(unready)} evaluations were not ready {timeout_s:g} s after the last step")
        self._pool.shutdown()

    def _raise_failed(self) -> None:
        while self._going and self._going[0].done():
            self._going.popleft().result()

    def _evaluate(self, step: int, t_s: float, snapshot: list[Tensor]) -> None:
        with torch.no_grad():
            for tensor, then in zip(_tensors(self._twin), snapshot, strict=True):
                tensor.copy_(then)
        name, value = self._name, self._value()
        self._emit(Evaluation(t_s=t_s, rank=0, step=step, name=name, value=value).to_json())

    def _value(self) -> float:
        self._twin.eval()
        with torch.no_grad():
            return self._workload.evaluate(self._twin)


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    return itertools.chain(model.parameters(), model.buffers())


def _yield_to_all() -> None:
    # Linux has priorities per thread, under the thread's own id.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
