"""Before the run: all that is loaded or compiled on first use, and work for the cores while links are measured."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable

from torch import nn

from compressors.base import Compressor
from testbed.core.spec import RunSpec
from testbed.worker.rehearsal import rehearse
from testbed.worker.workload import Workload

WARM_UP_STEPS = 2


class WarmUp:
    """Steps on a copy of everything; sends nothing, and leaves no trace in the run.

    Hundreds of workers share the memory, so what one step needs is given back before the next thing begins.

    Args:
        scratch: a compressor of the run's kind, not the run's own.
    """

    def __init__(self, workload: Workload, model: nn.Module, spec: RunSpec, rank: int, scratch: Compressor) -> None:
        self._workload, self._spec, self._rank = workload, spec, rank
        self._model = workload.warm_up_model(model)
        self._batch = workload.batch(0, rank=0, world_size=1, batch_size=spec.batch_size, seed=spec.seed)
        self._scratch = scratch

    def rehearse(self) -> None:
        """Two whole steps, and a reduction without other ranks."""
        optimizer = self._workload.optimizer(self._model.parameters())
        for step in range(WARM_UP_STEPS):
            self._compute()
            if step == 0:
                rehearse(self._scratch, self._model, self._spec, self._rank)
            optimizer.step()
        self._model.zero_grad()
        del optimizer
        give_back_memory()

    def work(self, busy: threading.Event, go: threading.Event) -> None:
        """From `busy` on compute until `go`: in between, the cores are for ranks that are not yet there.

        Args:
            busy: set at the latest with `go`.
        """
        busy.wait()
        while not go.is_set():
            self._compute()
            self._model.zero_grad()

    def _compute(self) -> None:
        self._workload.loss(self._model, self._batch).backward()


def give_back_memory() -> None:
    """What is free and the allocator keeps for later; glibc alone can be asked."""
    gc.collect()
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
