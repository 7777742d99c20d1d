"""The tensors of one message of a parameter server: which codec each takes, and what a receiver believes.

| tensor | travels as |
|---|---|
| the same bits that the receiver has, or a difference of zeros | unchanged |
| all elements the same bits | constant |
| not of floats, a buffer, of fewer than 2 dimensions, of `cutoff` elements or fewer | zstd; raw if that is no longer |
| every other parameter | the plan's codec; as above if that would be longer, or cannot keep to the bound |

So norms, biases and running statistics come out bit for bit. FedSZ (Wilkins et al., ICDCS 2024, arXiv:2312.13461) goes
by "weight" in names and the cutoff instead, which misses parameters of other names.

Payloads have no checksum: messages have one, or a keyed one, over all of them. What gets past it is still refused where
no sender can have meant it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from compressors.base.chunks import root_mean_square
from compressors.base.payload import PayloadError
from testbed.worker.methods.parameter_server.messages import lossless
from testbed.worker.methods.parameter_server.messages.entries import (
    Encoded,
    Entry,
    loss_of,
    not_finite,
    require_bounds,
    require_finite,
    require_plausible,
)
from testbed.worker.methods.parameter_server.messages.lossless import UNCHANGED
from testbed.worker.methods.parameter_server.messages.lossy import Lossy
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.schema import DISCRETE, PARAMETER, Item, Schema
from testbed.worker.methods.parameter_server.messages.tensor_codecs import OfCompressor, Origin

# What a lossy message has left out of each tensor, to be sent with the next.


class Residuals:
    """Error feedback for messages: r <- (x + r) - decoded, so that what was decoded adds up to what was sent, less r.

    Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014; Karimireddy et al., ICML 2019,
    arXiv:1901.09847. Keeps one tensor for each that travels lossy.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def plus(self, name: str, value: Tensor) -> Tensor:
        """A new tensor where something is kept."""
        kept = self._kept.get(name)
        return value if kept is None else value + kept

    def keep(self, left: Mapping[str, Tensor]) -> None:
        """Replace what is kept of these by what a message has left out."""
        self._kept.update(left)

    def state_dict(self) -> dict[str, Tensor]:
        return {name: kept.clone() for name, kept in self._kept.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._kept = {name: kept.clone() for name, kept in state.items()}


@dataclass(frozen=True)
class Measured:
    """What bounds are computed from."""

    update_rms: float
    """See `Entry.update_rms`."""
    low: float
    high: float


class Coder:
    """One end of one direction. Feedback, and some compressors, keep a state: each sender has a coder and a plan of its
    own.

    Tensors are lists in the order of the schema. What a message of payload "delta" or "grad" carries of parameters is
    float32 for halves; `Schema.delta` and `Schema.moved` go there and back.
    """

    def __init__(self, schema: Schema, plan: Plan) -> None:
        self.schema, self.plan = schema, plan
        self.residuals = Residuals() if plan.feedback else None
        self._lossy = None if plan.coder is None else Lossy(plan.coder, plan.direction, plan.dither)

    def measure(self, values: Sequence[Tensor], reference: Sequence[Tensor] | None = None) -> list[Measured]:
        """
        Args:
            values, reference: as of `encode`.

        Raises:
            NonFiniteError: by the name of the tensor.
            ValueError: the tensors are not the schema's.
        """
        olds = self._olds(values, reference)
        return [
            self._measure(item, value, old) for item, value, old in zip(self.schema.items, values, olds, strict=True)
        ]

    def may_lose(self, item: Item) -> bool:
        """Whether it goes through the plan's codec, unless that or its bound is of no use."""
        large = len(item.shape) >= 2 and item.numel > self.plan.cutoff
        return self._lossy is not None and item.kind == PARAMETER and large

    def encode(
        self,
        values: Sequence[Tensor],
        reference: Sequence[Tensor] | None = None,
        *,
        bounds: Mapping[str, float | None] | None,
        origin: Origin,
        measured: Sequence[Measured] | None = None,
        decoded: bool = True,
    ) -> Encoded:
        """
        Args:
            values: of parameters what the plan's payload says. Exact payloads and `tensors` may share their memory.
            reference: what the receiver has decoded last; None: it has nothing, so that all is sent.
            bounds: absolute, by name; 0, or none where the codec keeps to bounds: lossless. None: all is lossless.
            measured: what `measure` said of the same values, so as not to do it twice.
            decoded: whether to decode as well, and hold every tensor to its bound; with feedback in any case.

        Raises:
            NonFiniteError, PayloadError, BoundError: by the name of the tensor; the last two if a codec is broken.
            ValueError: the tensors or bounds are not the schema's.
            CodecProcessError: the helper process cannot work.
        """
        require_bounds(self.schema, bounds)
        olds = self._olds(values, reference)
        measured = self.measure(values, reference) if measured is None else measured
        decoded = decoded or self.residuals is not None
        result = Encoded([], None, [])
        sent = {}
        for index, item in enumerate(self.schema.items):
            value = self._with_feedback(item, self._ready(item, values[index]))
            asked = 0.0 if bounds is None else bounds.get(item.name)
            entry = self._entry(index, value, olds[index], asked, measured[index].update_rms, origin)
            found = self._found(entry, value, olds[index], origin) if decoded else None
            result.entries.append(entry)
            result.losses.append(loss_of(entry, item, asked, value, found))
            if found is not None:
                sent[item.name] = value, found
        self._keep(sent)
        return replace(result, tensors=[found for _, found in sent.values()] if decoded else None)

    def decode(
        self, entries: Sequence[Entry], reference: Sequence[Tensor] | None = None, *, origin: Origin
    ) -> list[Tensor]:
        """New tensors, one for each item, the same bits as the sender's `Encoded.tensors`.

        Args:
            reference: what was decoded last; parameters and buffers the sender says are unchanged are taken from it.
            origin: as the sender had it.

        Raises:
            PayloadError: by the name of the tensor, with what was expected and what was found.
            CodecProcessError: the helper process cannot work.
        """
        if (found := [entry.index for entry in entries]) != list(range(len(self.schema.items))):
            raise PayloadError(f"entries {found[:8]} are not one for each of {len(self.schema.items)} items, in order")
        olds = [None] * len(entries) if reference is None else reference
        return [self._decode(entry, old, origin) for entry, old in zip(entries, olds, strict=True)]

    def forget(self) -> None:
        """What is kept is of a model that is no more: begin anew."""
        if self.residuals is not None:
            self.residuals = Residuals()
        if isinstance(self.plan.coder, OfCompressor):
            self.plan.coder.compressor.load_state_dict({})

    def state_dict(self) -> dict[str, Any]:
        """Of feedback, and of a compressor that keeps something."""
        coder = self.plan.coder
        return {
            "residuals": {} if self.residuals is None else self.residuals.state_dict(),
            "compressor": coder.compressor.state_dict() if isinstance(coder, OfCompressor) else {},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.residuals is not None:
            self.residuals.load_state_dict(state["residuals"])
        if isinstance(self.plan.coder, OfCompressor):
            self.plan.coder.compressor.load_state_dict(state["compressor"])

    def _olds(self, values: Sequence[Tensor], reference: Sequence[Tensor] | None) -> Sequence[Tensor | None]:
        self.schema.require(values, "values")
        if reference is None:
            return [None] * len(values)
        self.schema.require(reference, "reference")
        return reference

    def _ready(self, item: Item, value: Tensor) -> Tensor:
        """In the type in which it travels, contiguous, on the processor; itself where it is all that."""
        return value.detach().to("cpu", item.carried(self.plan.payload)).contiguous()

    def _measure(self, item: Item, value: Tensor, old: Tensor | None) -> Measured:
        value = self._ready(item, value)
        require_finite(item, value)
        if item.kind == DISCRETE or not item.numel:
            return Measured(0.0, 0.0, 0.0)
        low, high = (float(end) for end in value.aminmax())
        if item.kind != PARAMETER or (self.plan.payload == "params" and old is None):
            return Measured(0.0, low, high)
        change = value
        if self.plan.payload == "params" and old is not None:
            change = value.to(item.wide) - old.to("cpu", item.wide)
        return Measured(root_mean_square(change.contiguous().view(-1)), low, high)

    def _with_feedback(self, item: Item, value: Tensor) -> Tensor:
        return value if self.residuals is None or not self.may_lose(item) else self.residuals.plus(item.name, value)

    def _keep(self, sent: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        """What has been left out of each tensor, once all of them are coded."""
        if self.residuals is not None:
            lossy = [item.name for item in self.schema.items if self.may_lose(item)]
            self.residuals.keep({name: sent[name][0] - sent[name][1] for name in lossy})

    def _found(self, entry: Entry, value: Tensor, old: Tensor | None, origin: Origin) -> Tensor:
        """What the receiver will have."""
        return value if entry.exact and entry.codec != UNCHANGED else self._decode(entry, old, origin)

    def _entry(
        self, index: int, value: Tensor, old: Tensor | None, asked: float | None, rms: float, origin: Origin
    ) -> Entry:
        codec, payload, bound = self._coded(index, value, old, asked, origin)
        return Entry(index=index, codec=codec, bound=bound, update_rms=rms, raw_bytes=value.nbytes, payload=payload)

    def _coded(
        self, index: int, value: Tensor, old: Tensor | None, asked: float | None, origin: Origin
    ) -> tuple[str, Tensor, float]:
        """(the codec's name, the payload, the bound)."""
        item = self.schema.items[index]
        if self.plan.leaves_out and self._is_unchanged(item, value, old):
            return UNCHANGED, torch.empty(0, dtype=torch.uint8), 0.0
        lossy = self._lossy if self.may_lose(item) and asked != 0 else None
        if lossy is not None and not lossless.is_constant(value):
            packed = lossy.pack(index, item, value, asked, origin)
            if packed is not None:
                return lossy.codec.name, *packed
        return *lossless.pack(value, constants=self.plan.leaves_out, zstd=self.plan.zstd), 0.0

    def _travels_as_change(self, item: Item) -> bool:
        return item.kind == PARAMETER and self.plan.payload != "params"

    def _is_unchanged(self, item: Item, value: Tensor, old: Tensor | None) -> bool:
        if not item.numel:
            return False
        if self._travels_as_change(item):
            return not value.any()
        return old is not None and lossless.same_bits(value, self._ready(item, old))

    def _decode(self, entry: Entry, old: Tensor | None, origin: Origin) -> Tensor:
        item = self.schema.items[entry.index]
        try:
            require_plausible(entry, item, self.plan, lossy=self.may_lose(item))
            return self._believed(entry, item, old, origin)
        except PayloadError as error:
            raise PayloadError(f"{item.name}: {error}") from error

    def _believed(self, entry: Entry, item: Item, old: Tensor | None, origin: Origin) -> Tensor:
        dtype = item.carried(self.plan.payload)
        if entry.codec == UNCHANGED:
            if self._travels_as_change(item):
                return torch.zeros(item.shape, dtype=dtype)
            if old is None:
                raise PayloadError("is said to be unchanged, but nothing has been received before")
            return self._ready(item, old).clone()
        if entry.exact:
            found = lossless.unpack(entry.codec, entry.payload, item, dtype)
            if fault := not_finite(item, found):
                raise PayloadError(fault)
            return found
        assert self._lossy is not None, "the plan says which codecs there are"
        return self._lossy.unpack(entry.index, item, entry.payload, entry.bound, dtype, origin)
