"""Before the run: all that is loaded or compiled on first use, and work for the cores while links are measured."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable

import torch
from torch import nn

from compressors.base.compressor import Compressor
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.device.accelerator import to_device
from testbed.worker.interfaces.workload import Workload, trained
from testbed.worker.interfaces.workload_capabilities import warm_up_model
from testbed.worker.reduction.rehearsal import rehearse

WARM_UP_STEPS = 2
TURNS = 8
"""Ranks that rehearse at a time; enough to fill the cores of a small machine."""


class WarmUp:
    """Steps on a copy of everything; sends nothing, and leaves no trace in the run.

    Hundreds of workers share the memory, so what one step needs is given back before the next thing begins.

    Args:
        scratch: a compressor of the run's kind, not the run's own.
    """

    def __init__(self, workload: Workload, model: nn.Module, spec: RunSpec, rank: int, scratch: Compressor) -> None:
        self._workload, self._original, self._spec, self._rank = workload, model, spec, rank
        batch = workload.batch(0, rank=0, world_size=1, batch_size=spec.batch_size, seed=spec.seed)
        self._batch = to_device(batch, next((p.device for p in model.parameters()), torch.device("cpu")))
        self._scratch = scratch

    def rehearse(self) -> None:
        """Two whole steps, and a reduction without other ranks."""
        model = warm_up_model(self._workload, self._original)
        optimizer = self._workload.optimizer(trained(model))
        for step in range(WARM_UP_STEPS):
            self._workload.loss(model, self._batch).backward()
            if step == 0:
                optimizer = rehearse(self._scratch, model, optimizer, self._spec, self._rank)
            optimizer.step()
        del model, optimizer
        give_back_memory()

    def work(self, busy: threading.Event, rest: threading.Event) -> None:
        """From `busy` on compute until `rest`: before, the cores are for ranks that are not yet there.

        Args:
            busy: set at the latest with `rest`.
        """
        busy.wait()
        if rest.is_set():
            return
        model = warm_up_model(self._workload, self._original)
        while not rest.is_set():
            self._workload.loss(model, self._batch).backward()
            model.zero_grad()
        del model
        give_back_memory()


def give_back_memory() -> None:
    """What is free and the allocator keeps for later; glibc alone can be asked."""
    gc.collect()
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
