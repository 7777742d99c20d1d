"""Where a rank computes: on the processor, or on an accelerator of the machine that is there, or of its node."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist  # noqa: TID251 - asked what it was built with; it sends nothing here
from torch import Tensor

from testbed.core.errors import MachineError
from testbed.core.spec.run_spec import CUDA, NCCL, PROCESSOR
from testbed.worker.device.device_meter import DeviceMeter

NCCL_BY_SOCKETS = {
    **dict.fromkeys(("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"), "1"),
    **dict.fromkeys(("NCCL_NVLS_ENABLE", "NCCL_MNNVL_ENABLE", "NCCL_COLLNET_ENABLE"), "0"),
    "NCCL_NET": "Socket",
}
"""What keeps NCCL to the node's interface: devices of one machine would otherwise send to each other beside it."""


class Accelerator:
    """Device of a rank; `Accelerator()` is the processor, which has nothing to wait for.

    Model, batches and gradients lie there, and what is made of them; evaluations, records and control messages stay
    in the host's memory. Tensors travel by where they lie: by NCCL from there, by gloo from the host's memory, which is
    where the payloads of some compressors are. One that `stages` has no NCCL: what leaves it goes by way of the host.
    """

    def __init__(self, device: torch.device | None = None, *, stages: bool = False) -> None:
        """
        Args:
            stages: True if tensors that leave it are copied to the host's memory, and those that arrive back.
        """
        self.device = device or torch.device("cpu")
        self.stages = stages
        self.meter: DeviceMeter | None = None
        """Seconds that it works, of an emulated node's; None: nobody asks for them."""
        self._side: Any = None

    @classmethod
    def of_rank(cls, kind: str, local_rank: int) -> Accelerator:
        """Return that of the rank's number on its machine.

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
        return cls._used(torch.device(kind, local_rank), stages=False)

    @classmethod
    def of_node(cls, kind: str) -> Accelerator:
        """Return the one device that an emulated node was given.

        Args:
            kind: Value of the run's `accelerator`.

        Raises:
            MachineError: its container sees none.
        """
        if (there := torch.cuda.device_count()) != 1:
            raise MachineError(
                f"accelerator={kind}: this node was given one device, and torch {torch.__version__} finds {there}; see"
                " that nvidia-smi and torch.cuda.device_count() find it outside of the node"
            )
        if kind == NCCL:
            os.environ.update(NCCL_BY_SOCKETS)
        return cls._used(torch.device("cuda", 0), stages=kind == CUDA)

    @classmethod
    def _used(cls, device: torch.device, *, stages: bool) -> Accelerator:
        torch.cuda.set_device(device)
        # Otherwise backward, and with it the hooks that send, would run in a thread of autograd's own, which has other
        # CPU seconds than the clock's.
        torch.autograd.set_multithreading_enabled(False)
        return cls(device, stages=stages)

    @property
    def is_processor(self) -> bool:
        """True if nothing has to be waited for."""
        return self.device.type == "cpu"

    @property
    def name(self) -> str | None:
        """Name for the record."""
        return None if self.is_processor else f"{self.device}: {torch.cuda.get_device_name(self.device)}"

    @property
    def backend(self) -> str:
        """Backend of torch's process group; gloo takes tensors of CUDA too, where torch's own strategies send them."""
        return "gloo" if self.is_processor or self.stages else f"cpu:gloo,{self.device.type}:nccl"

    def event(self) -> Any:
        """Return a new event, whose waits leave the processor to others."""
        return torch.cuda.Event(enable_timing=True, blocking=True)

    def to_host(self, tensor: Tensor) -> Tensor:
        """Return a copy in pinned host memory that may be sent; the tensor itself where it need not be copied."""
        if (copy := self.beside(tensor)) is not tensor:
            copy.copy_(tensor, non_blocking=True)
            self.settle()
        return copy

    def beside(self, tensor: Tensor) -> Tensor:
        """Return pinned host memory for what is to arrive in a tensor; the tensor itself where it can arrive there."""
        if not self.stages or tensor.device != self.device:
            return tensor
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=not self.is_processor)

    def back(self, tensor: Tensor, arrived: Tensor) -> Tensor:
        """Return a tensor with what has arrived in `beside` of it."""
        return tensor if arrived is tensor else tensor.copy_(arrived, non_blocking=True)

    def settle(self) -> None:
        """Wait for what was begun there in order, so that a phase is not over before its work is; not for collectives
        that nobody has waited for yet, which are under way beside it."""
        if not self.is_processor:
            mark = self.event()  # a stream's own wait would spin, and take the core and CPU seconds of it
            mark.record(torch.cuda.current_stream(self.device))
            mark.synchronize()

    def until_through(self, wait: Callable[[], object]) -> Callable[[], object]:
        """Return what blocks until a collective is through, for a thread that only watches.

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
    """Return a workload's batch with all its tensors there."""
    if device.type == "cpu":
        return batch
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if not isinstance(batch, list | tuple):
        return batch
    moved = [to_device(item, device) for item in batch]
    return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)


def build_faults(kind: str) -> Iterator[str]:
    """Yield what this build of torch lacks for a run's `accelerator`."""
    if kind == PROCESSOR:
        return
    if not torch.backends.cuda.is_built():
        yield f"accelerator={kind}: torch {torch.__version__} is built without CUDA; install a build with it"
    elif kind == NCCL and not dist.is_nccl_available():
        yield f"accelerator={kind}: torch {torch.__version__} is built without NCCL; use accelerator={CUDA}"
