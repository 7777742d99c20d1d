from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from compressors.base.compressor import Context, FeedbackMode, Layout
from compressors.base.payload import PayloadError
from compressors.base.streams import Stream
from compressors.base.wrapper import Around
from compressors.parts import frame
from compressors.parts.deepreduce_bloom import POLICIES, Bloom
from compressors.parts.deepreduce_fits import FitDExp, FitPoly
from compressors.parts.deepreduce_index import Bitmap, EliasFano, Huffman, IndexCodec, Raw, Rice
from compressors.parts.deepreduce_values import QSGD, Deflate, RawValues, ValueCodec
from compressors.parts.sparse import Sparsifier, require_indices, scatter
from testbed.core.kinds import Choice, Number, Part, Whole
from testbed.core.parameters import MAX_BLOCK, inner_feedback

INDEX_CODECS = ("raw", "bitmap", "rice", "elias_fano", "huffman", "bloom")
VALUE_CODECS = ("raw", "deflate", "qsgd", "fit_poly", "fit_dexp")
_TAG = "deepred"
_HEADER = struct.Struct("<BBII")


@dataclass(frozen=True)
class _Inner(Part):
    """Sparse compressors whose payloads are gathered."""

    def faults(self, name: str, value: object, *, null: bool = False) -> Iterator[str]:
        yield from super().faults(name, value, null=null)
        if isinstance(value, Sparsifier):
            if value.traits.own_rounds or value.traits.sum_dtype is not None or not value.traits.point_to_point:
                yield f"{name}={type(value).__name__}: must gather its payloads, which this one's rounds or sums do not"
            elif fault := inner_feedback(f"{name}.feedback", value.feedback, "DeepReduce"):
                yield fault


class DeepReduce(Around):
    """Encode a sparse compressor's indices and values separately.

    Xu, Kostopoulou, Dutta, Li, Ntoulas, Kalnis, "DeepReduce: A Sparse-tensor Communication Framework for Federated Deep
    Learning", NeurIPS 2021, arXiv:2102.03112.
    Differs from the paper: Rice and Elias-Fano codes of indices, which beat its Bloom filter at every density; small
    tensors are coded too (leave them out with `policy`); for the rest see each codec.

    The entries that arrive are those that `inner` chose, but for losses of the codec of values. Not linear, so payloads
    are gathered, or averaged in two shots, which encodes twice. Biased as `inner` is, and more by fit_poly and
    fit_dexp; qsgd is unbiased given the chosen entries. With index=bloom, values at false positives are those of the
    tensor itself, and policies p1 and p2 leave out some that were chosen. NaN is passed on; fit_poly and fit_dexp
    refuse it.
    Wire: a frame of 28 bytes; codec of indices, codec of values, uint8 each; k, bytes of coded indices, uint32 each;
    indices; values. With index=rice and value=raw about 38 + k (1.5 + log2(n / k) + 32) / 8 bytes.
    The frame alone if all chosen values are 0.
    Keeps the state of `inner`.

    Args:
        inner: Sparse compressor; its own feedback must be auto.
        index: Codec of indices. raw: 32 bits an index; bitmap: n / k; rice: of gaps; huffman: of the sizes of gaps.
        value: Codec of values. raw: 32 bits a value; qsgd: about 8; fit_poly, fit_dexp: ceil(log2 k) each, for the
            order.
        policy: Handling of false positives (index=bloom). See `compressors/parts/deepreduce_bloom.py`.
        false_positive_rate: False-positive rate (index=bloom). Best for p0 and raw values: k / (15.4 (n - k)).
        levels: Levels (value=qsgd).
        bucket_size: Values that share a norm (value=qsgd).
        segments: Segments per sign (value=fit_poly).

    Raises:
        ValueError: a parameter is out of its range, or `inner` is no sparse compressor of one exchange.
    """

    is_sparse = True

    def __init__(
        self,
        *,
        inner: Annotated[Sparsifier, _Inner(Sparsifier, "a compressor that sends chosen entries, as topk")],
        index: Annotated[str, Choice(INDEX_CODECS)] = "rice",
        value: Annotated[str, Choice(VALUE_CODECS)] = "raw",
        policy: Annotated[str, Choice(POLICIES)] = "p0",
        false_positive_rate: Annotated[float, Number(least=1e-6, below=1)] = 0.001,
        levels: Annotated[int, Whole(1, 127)] = 127,
        bucket_size: Annotated[int, Whole(8, MAX_BLOCK)] = 512,
        segments: Annotated[int, Whole(1, 1000)] = 8,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(inner, feedback=feedback)
        self.inner: Sparsifier = inner
        self._index = _index_codec(index, policy, false_positive_rate)
        self._value = _value_codec(value, levels, bucket_size, segments)
        self._set_traits()

    def _set_traits(self) -> None:
        inner, lost = self.inner.traits, self._value.loses
        keeps = inner.contraction is not None and self._index.keeps_all and lost is not None and lost < 1
        unbiased = inner.unbiased and self._value.unbiased and not isinstance(self._index, Bloom)
        biased_feedback = "recommended" if inner.feedback == "harmful" else inner.feedback
        self.traits = replace(
            inner,
            fixed_size=False,
            contraction=(inner.contraction or 0.0) * (1 - (lost or 0.0)) if keeps else None,
            unbiased=unbiased,
            feedback=inner.feedback if unbiased else biased_feedback,
            carries_non_finite=self._value.carries_non_finite and (inner.carries_non_finite or None),
        )
        self.default_feedback = self.inner.default_feedback  # type: ignore[misc]
        self.momentum = getattr(self.inner, "momentum", None)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        numel = layout.numel
        kept = self.inner.kept(numel, context)
        carried = round(self._index.carried(kept, numel))
        bits = self._index.bits(kept, numel) + self._value.bits(carried)
        return frame.HEADER_BYTES + _HEADER.size + round(bits / 8)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        numel = tensor.numel()
        require_indices(numel, type(self).__name__)
        chosen, given = self.inner.select(tensor, context)
        if not given.any():
            return frame.pack(_TAG, frame.ZERO, numel).to(tensor.device)
        indices, values = chosen.cpu().numpy(), given.cpu().numpy()
        coded, carried = self._index.encode(indices, numel, _stream(context, "indices"), tensor.device)
        if len(carried) != len(indices) or not self._index.keeps_all:
            values = _filled(tensor, carried, indices, values)
        levels = self._value.encode(values, _stream(context, "values"))
        head = _HEADER.pack(self._index.number, self._value.number, len(indices), len(coded))
        body = np.concatenate([np.frombuffer(head, dtype=np.uint8), coded, levels])
        return frame.pack(_TAG, frame.CODED, numel, torch.from_numpy(body)).to(tensor.device)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        numel = out.numel()
        kind, body = frame.unpack(payload, _TAG, numel, 8 * numel + 4096, (frame.ZERO, frame.CODED))
        if kind == frame.ZERO:
            if not add:
                out.zero_()
            return
        indices, values = self._decoded(body.numpy(), numel, context, out.device)
        device = out.device
        scatter(out, torch.from_numpy(indices).to(device), torch.from_numpy(values).to(device), add, scale)

    def _decoded(
        self, body: np.ndarray, numel: int, context: Context, device: torch.device
    ) -> tuple[np.ndarray, np.ndarray]:
        named = f"{type(self).__name__} payload for {numel} elements"
        if len(body) < _HEADER.size:
            raise PayloadError(f"{named}: its body of {len(body)} bytes is shorter than a header")
        index, value, count, size = _HEADER.unpack_from(body[: _HEADER.size].tobytes())
        if (index, value) != (self._index.number, self._value.number):
            ours = self._index.number, self._value.number
            raise PayloadError(f"{named}: coded by codecs {index} and {value}, expected {ours[0]} and {ours[1]}")
        coded, levels = body[_HEADER.size :][:size], body[_HEADER.size :][size:]
        if not 0 < count <= numel or len(coded) != size:
            raise PayloadError(f"{named}: says it has {count} entries, their indices in {size} bytes")
        carried = self._index.decode(coded, count, numel, _stream(context, "indices"), device)
        return carried, self._value.decode(levels, len(carried))


def _filled(tensor: Tensor, carried: np.ndarray, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the values of the sent entries: as chosen if they were, otherwise those of the tensor."""
    filled = tensor[torch.from_numpy(carried).to(tensor.device)].float().cpu().numpy()
    places = np.minimum(np.searchsorted(indices, carried), len(indices) - 1)
    were = indices[places] == carried
    filled[were] = values[places[were]]
    return filled


def _stream(context: Context, purpose: str) -> Stream:
    """Sender and receiver find the same, since the receiver is told who encoded."""
    return context.random(f"deepreduce {purpose}", shared=False)


def _index_codec(name: str, policy: str, false_positive_rate: float) -> IndexCodec:
    codecs: dict[str, IndexCodec] = {
        "raw": Raw(),
        "bitmap": Bitmap(),
        "rice": Rice(),
        "elias_fano": EliasFano(),
        "huffman": Huffman(),
        "bloom": Bloom(policy, false_positive_rate),
    }
    return codecs[name]


def _value_codec(name: str, levels: int, bucket_size: int, segments: int) -> ValueCodec:
    codecs: dict[str, ValueCodec] = {
        "raw": RawValues(),
        "deflate": Deflate(),
        "qsgd": QSGD(levels, bucket_size),
        "fit_poly": FitPoly(segments),
        "fit_dexp": FitDExp(),
    }
    return codecs[name]
