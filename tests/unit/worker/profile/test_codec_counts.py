"""What rounds do is counted: encodings, decodings and operations besides, and nothing of it twice."""

from __future__ import annotations

import time

import pytest
import torch

from compressors.base.compressor import Layout
from testbed.core.device.codecs.work import CodecWork
from testbed.orchestrator.config.config import compose
from testbed.worker.profile.codec_counts import is_operation
from testbed.worker.profile.codec_rounds import Alone, AmongAll

N = 2048


def counted(*overrides: str) -> tuple[CodecWork, ...]:
    """Return what the rounds of one bucket do among four ranks in two regions: every rank gets every payload."""
    bucket = Alone(compose(["topo=wan1g", "workers=4", *overrides]), Layout(((N,),)))
    rounds = bucket.once(0).rounds  # which also makes what is kept from step to step
    found = bucket.work(1)
    assert len(found) == len(rounds)
    return found


def test_feedback_decodes_what_was_sent_and_every_rank_s_payload() -> None:
    first, last = counted("compressor=topk", "compressor.feedback=on")
    assert (first.encodes, first.encoded, first.decodes, first.decoded) == (1, N, 1, N)
    assert (last.encodes, last.decodes, last.decoded) == (0, 4, 4 * N)
    assert first.operations == 1  # the residual is added to
    assert first.operation_bytes == 3 * 4 * N


def test_without_feedback_nothing_is_decoded_before_it_is_sent() -> None:
    first, last = counted("compressor=topk", "compressor.feedback=off")
    assert (first.encodes, first.decodes, first.operations) == (1, 0, 0)
    assert last.decodes == 4


def test_gradients_that_travel_as_they_are_are_neither_encoded_nor_decoded() -> None:
    first, last = counted("compressor=none")
    assert first == CodecWork()
    assert (last.encodes, last.decodes) == (0, 0)
    assert last.operations == 2  # the mean, and where it goes


def test_what_only_all_ranks_can_reduce_is_counted_for_one() -> None:
    spec = compose(["topo=lan", "workers=4", "compressor=randomk", "compressor.feedback=off"])
    bucket = AmongAll(spec, Layout(((N,),)), ValueError("another's"), end_s=time.monotonic() + 60)
    rounds = bucket.once(1).rounds
    found = bucket.work(1)
    assert len(found) == len(rounds)
    assert (found[0].encodes, found[0].encoded) == (1, N)
    assert (found[-1].decodes, found[-1].decoded) == (1, N)  # payloads of the same places are summed


@pytest.mark.parametrize(
    ("name", "is_one"), [("add_.Tensor", True), ("view.default", False), ("empty.memory_format", False)]
)
def test_views_and_allocations_are_no_operations(name: str, is_one: bool) -> None:
    packet, _, overload = name.partition(".")
    assert is_operation(getattr(getattr(torch.ops.aten, packet), overload)) is is_one
