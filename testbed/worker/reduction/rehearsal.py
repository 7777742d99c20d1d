"""The reduction before the run: everything a compressor loads or compiles on first use, with no other rank."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from compressors.base.compressor import Compressor, Layout, Route
from compressors.base.feedback import with_feedback
from compressors.base.payload import PayloadError
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.pending import Pending
from testbed.worker.device.clock import PhaseClock
from testbed.worker.reduction.reducer import Reducer


class Echo(Communicator):
    """Answers at once what would come if every rank sent what this one does; sends nothing.

    A sum comes back as if all others had sent zeros.
    """

    networked = False

    def all_reduce(self, tensor: Tensor, *, op: str = "sum") -> Pending:
        return self._done([tensor])

    def all_gather(self, payload: Tensor, sizes: Sequence[int]) -> Pending:
        return self._done([payload] * self.world_size)

    def all_to_all(self, payloads: Sequence[Tensor], sizes: Sequence[int]) -> Pending:
        return self._done([payloads[self.rank]] * self.world_size)

    def exchange_sizes(self, sizes: Sequence[int]) -> Pending:
        return self._done([torch.tensor([sizes[self.rank]] * self.world_size, dtype=torch.int64)])


def rehearse(
    scratch: Compressor, model: nn.Module, optimizer: torch.optim.Optimizer, spec: RunSpec, rank: int
) -> torch.optim.Optimizer:
    """Reduce the model's gradients as one bucket, by the route that such a bucket takes in the run, without a network.

    Returns the optimizer that the run has with this compressor.

    What it cannot rehearse is gloo: its first collective of each kind is the run's first.

    Args:
        scratch: a compressor of the run's kind, not the run's own.
        optimizer: of which it may take what it takes of the run's.
    """
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    layout = Layout(tuple(tuple(g.shape) for g in gradients.values()), names=tuple(gradients))
    flat = torch.cat([g.reshape(-1) for g in gradients.values()])
    echo = Echo(rank, spec.workers, spec.timeout_s)
    compressor = with_feedback(scratch)
    adopted = compressor.adopt(optimizer)
    reducer = Reducer(compressor, echo, PhaseClock(), spec.topology, spec.seed)
    if reducer.context(layout, 0).route is Route.TWO_SHOT:
        # Parts of one size, so that this rank's payload passes for any other's.
        numel = layout.numel - layout.numel % spec.workers
        flat, layout = flat[:numel], Layout(((numel,),))
    # A codec may notice that the others' payloads are not theirs; its code has been touched by then.
    with contextlib.suppress(PayloadError):
        reducer.start(flat, layout, 0)
        reducer.finish()
    return adopted
