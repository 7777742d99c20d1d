"""What a run tells of each text, and what its work and bytes would be."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from testbed.core.device.profile import WorkTimes
from testbed.core.record.events.kv_transfer import KvQuality, KvText
from testbed.worker.methods.kv_transfer.cache.store import Traffic
from testbed.worker.methods.kv_transfer.model.texts import Sample, Texts
from testbed.worker.methods.kv_transfer.model.transformer import DenseCache, KVTransformer, Shape
from testbed.worker.methods.kv_transfer.quality import compare
from testbed.worker.methods.kv_transfer.roles import DECODE, PREFILL, DecodedNear, decode
from testbed.worker.methods.kv_transfer.selection.methods import Method

_HALF_BYTES = 2


def text_event(
    text: int,
    sample: Sample,
    found: DecodedNear,
    near_bytes: int,
    traffic: Traffic,
    dilation: float,
    up_bytes: int,
    down_bytes: int,
) -> KvText:
    """Return the event of a text that was decoded.

    Args:
        text: Number of the text.
        up_bytes, down_bytes: Bytes that the line carried for it each way, frames included.
    """
    decoded, others = found.decoded, len(found.decoded.found) - 1
    return KvText(
        text=text,
        tokens=len(decoded.found),
        found=decoded.found,
        set_up_bytes=found.set_up_bytes,
        near_bytes=near_bytes,
        round_trips=traffic.round_trips,
        round_trips_ahead=traffic.round_trips_ahead,
        first_token_s=decoded.first_s / dilation,
        token_s=(decoded.whole_s - decoded.first_s) / others / dilation if others else None,
        questions=len(sample.asked_at),
        right=decoded.right,
        up_bytes=up_bytes,
        down_bytes=down_bytes,
    )


def quality_event(text: int, model: KVTransformer, method: Method, sample: Sample) -> KvQuality:
    """Return the event that compares a selector with exact attention, both in this process, on the text as exact
    attention decodes it.

    Args:
        text: Number of the text.
    """
    beginning = torch.tensor(sample.text[: sample.prefill])
    exact = decode(model, sample, lambda: DenseCache(model.prefill(beginning)))
    report = compare(model, torch.tensor(exact.text[:-1]), sample.prefill, lambda: method.new(model))
    return KvQuality(
        text=text,
        token_match=report.token_match,
        kl_nats=report.mean_kl_nats,
        relative_error=report.mean("relative_error"),
        cosine=report.mean("cosine"),
        mass_recall=report.mean("mass_recall"),
        overlap=report.mean("overlap"),
        exact_right=exact.right,
    )


def dense_bytes(shape: Shape, texts: Texts) -> float:
    """What all keys and values of earlier positions take as float16, once for each position that is decoded."""
    return float(sum(2 * shape.layers * shape.width * _HALF_BYTES * position for position in _decoded(texts)))


def work_of(shape: Shape, texts: Texts) -> tuple[WorkTimes, ...]:
    """Of a step, of such texts."""
    beginnings = [int(prefill) for prefill in texts.prefill]
    prefilled = [position for beginning in beginnings for position in range(beginning)]
    decoded = list(_decoded(texts))
    return (
        WorkTimes(name=PREFILL, kind=PREFILL, size=len(prefilled), seconds=0.0, flop=_flop(shape, prefilled)),
        WorkTimes(name=DECODE, kind=DECODE, size=len(decoded), seconds=0.0, flop=_flop(shape, decoded)),
    )


def _decoded(texts: Texts) -> Iterator[int]:
    for index in range(len(texts.text)):
        yield from texts.sample(index).steps


def _flop(shape: Shape, positions: list[int]) -> float:
    """Of a forward over each of these, with exact attention to all before it."""
    width = shape.width
    linear = shape.layers * (4 + 2 * shape.widening) * width**2 + 256 * width
    return float(sum(2 * linear + 4 * shape.layers * width * (position + 1) for position in positions))
