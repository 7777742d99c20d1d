"""The reducer over a communicator in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Exchange, Layout, Rounds, Traits
from compressors.sz3 import SZ3
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.pending import CollectiveError, Pending
from testbed.worker.device.clock import PhaseClock
from testbed.worker.reduction.reducer import Reducer
from topologies import lan

LAYOUT = Layout(((40, 50),))


class Mirror(Communicator):
    """Two ranks that send the same; keeps what was asked for."""

    def __init__(self, announced: int | None = None) -> None:
        super().__init__(rank=0, world_size=2, timeout_s=1)
        self.asked: list[Exchange] = []
        self._announced = announced

    def run(self, exchange: Exchange) -> Pending:
        self.asked.append(exchange)
        return self._done([tensor.clone() for tensor in self._answer(exchange)])

    def _answer(self, exchange: Exchange) -> Sequence[Tensor]:
        if exchange.kind == "all_reduce":
            return [2 * exchange.data[0]]
        if self._announced is not None and exchange.sizes == [8, 8]:
            return [exchange.data[0], torch.tensor([self._announced]).view(torch.uint8)]
        return [exchange.data[0]] * 2


class EveryOther(Compressor):
    """Sends nothing in odd steps."""

    traits = Traits(own_rounds=True, point_to_point=False)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return 0 if context.step % 2 else 4 * layout.numel

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        if context.step % 2:
            out.zero_()
            return
        (total,) = yield Exchange(kind="all_reduce", data=[tensor.clone()])
        out.copy_(total / context.world_size)


def _reducer(compressor: Compressor, comm: Communicator) -> Reducer:
    return Reducer(compressor, comm, PhaseClock(), lan.build(workers=2), seed=0)


def test_a_step_may_have_no_exchange() -> None:
    comm = Mirror()
    reducer = _reducer(EveryOther(), comm)
    for step, expected in ((0, 1.0), (1, 0.0), (2, 1.0)):
        flat = torch.ones(LAYOUT.numel)
        reducer.start(flat, LAYOUT, step)
        reducer.finish()
        assert torch.equal(flat, torch.full_like(flat, expected))
    assert len(comm.asked) == 2


def test_sizes_are_asked_for_where_they_are_not_known() -> None:
    comm = Mirror()
    reducer = _reducer(SZ3(error_bound=0.01), comm)
    flat = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0))
    given = flat.clone()
    reducer.start(flat, LAYOUT, 0)
    reducer.finish()
    question, payload = comm.asked[0], comm.asked[1]
    assert question.sizes == [8, 8] and question.kind == payload.kind
    assert payload.sizes == [len(payload.data[0])] * 2
    assert torch.allclose(flat, given, atol=0.03)


@pytest.mark.parametrize("announced", [2**60, -1, 8 * LAYOUT.numel + 4097])
def test_a_size_no_payload_can_have_is_refused_before_memory_is_taken(announced: int) -> None:
    reducer = _reducer(SZ3(), Mirror(announced))
    reducer.start(torch.ones(LAYOUT.numel), LAYOUT, 0)
    with pytest.raises(CollectiveError, match=rf"rank 1 announced {announced} bytes for 2000 elements"):
        reducer.finish()
