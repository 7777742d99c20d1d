"""Where a rank computes: on the processor, or, on a machine that is there, on one of its accelerators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist  # noqa: TID251 - asked what it was built with; it sends nothing here

from testbed.core.errors import MachineError


class Accelerator:
    """Of a rank; `Accelerator()` is the processor, which has nothing to wait for.

    Model, batches and gradients lie there, and what is made of them; evaluations, records and control messages stay
    in the host's memory. Tensors travel by where they lie: by NCCL from there, by gloo from the host's memory, which is
    where the payloads of some compressors are.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device or torch.device("cpu")
        self._side: Any = None

    @classmethod
    def of_rank(cls, kind: str, local_rank: int) -> Accelerator:
        """That of the rank's number on its machine.

        Args:
            kind: "cuda".

        Raises:
            MachineError: there is no such one, or no NCCL.
        """
        there, has_nccl = torch.cuda.device_count(), dist.is_nccl_available()
        if local_rank >= there or not has_nccl:
            raise MachineError(
                f"--accelerator {kind}: rank {local_rank} of this machine wants a device of its own, and NCCL; found"
                f" {there} devices and {'NCCL' if has_nccl else 'no NCCL'} (torch {torch.__version__}). Start as many"
                " ranks as there are devices (--nproc-per-node), with a build of torch for them, or leave it out"
            )
        device = torch.device(kind, local_rank)
        torch.cuda.set_device(device)
        # Otherwise backward, and with it the hooks that send, would run in a thread of autograd's own, which has other
        # CPU seconds than the clock's.
        torch.autograd.set_multithreading_enabled(False)
        return cls(device)

    @property
    def is_processor(self) -> bool:
        return self.device.type == "cpu"

    @property
    def name(self) -> str | None:
        """For the record."""
        return None if self.is_processor else f"{self.device}: {torch.cuda.get_device_name(self.device)}"

    @property
    def backend(self) -> str:
        """Of torch's process group."""
        return "gloo" if self.is_processor else f"cpu:gloo,{self.device.type}:nccl"

    def settle(self) -> None:
        """Wait for what was begun there in order, so that a phase is not over before its work is; not for collectives
        that nobody has waited for yet, which are under way beside it."""
        if not self.is_processor:
            torch.cuda.current_stream(self.device).synchronize()

    def until_through(self, wait: Callable[[], object]) -> Callable[[], object]:
        """What blocks until a collective is through, for a thread that only watches.

        NCCL's own `wait` returns at once and has the thread's stream wait: here one of its own, since on the usual one
        what is computed beside the collective would wait for it.
        """
        if self.is_processor:
            return wait

        def through() -> None:
            if self._side is None:
                self._side = torch.cuda.Stream(self.device)
            with torch.cuda.stream(self._side):
                wait()
            self._side.synchronize()

        return through


def to_device(batch: Any, device: torch.device) -> Any:
    """A workload's batch with all its tensors there."""
    if device.type == "cpu":
        return batch
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if not isinstance(batch, list | tuple):
        return batch
    moved = [to_device(item, device) for item in batch]
    return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)


def own_messages_fault(collective: str) -> Iterator[str]:
    """Why a strategy with this collective cannot train a model that lies on an accelerator."""
    if collective != "gloo":
        yield (
            f"strategy.collective={collective}: sends tagged messages from rank to rank, which NCCL has not;"
            " use strategy.collective=gloo, torch's own collectives, which are NCCL's there"
        )
