"""What a compressor is.

A compressor turns a 1-D tensor into a payload (a 1-D uint8 tensor of real packed bytes) and back, and says what it is
in `traits`. How ranks agree on a mean follows from that: `Route` is derived, never chosen by a user. A compressor does
no I/O: `rounds` yields an `Exchange` for each collective and is resumed with its result, so that the runtime can time,
count and order all that is sent. Point to point (parameter servers, activations), a strategy calls `encode` and
`decode` itself, with a `Context` whose route is None and whose `stream` names the receiver. An example is in
docs/compressors.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from compressors.base.context import Context, Exchange, Feedback, Layout, Rounds, Route, Traits
from compressors.base.payload import PointToPointError
from compressors.base.routes import ROUTES, SIZE_BYTES, choose_route, part_layouts, route_sent_bytes
from testbed.core.declaration import Declared
from testbed.core.kinds import Choice

__all__ = [
    "SIZE_BYTES",
    "Compressor",
    "Context",
    "Exchange",
    "Feedback",
    "FeedbackMode",
    "Layout",
    "Rounds",
    "Route",
    "Traits",
    "choose_route",
    "part_layouts",
]

FEEDBACK_KINDS = ("plain", "ef21", "momentum")
FEEDBACK_MODES = ("auto", "on", "off", *FEEDBACK_KINDS)


@dataclass(frozen=True)
class _Mode(Choice):
    """A choice that YAML may read as a truth value, from a bare on or off."""

    def allows(self, value: object) -> bool:
        return isinstance(value, bool) or super().allows(value)


FeedbackMode = Annotated[str | bool, _Mode(FEEDBACK_MODES)]


class Compressor(Declared, ABC):
    """Base of all compressors. Constructors take keyword-only parameters and raise ValueError for each bad one.

    Args:
        feedback: Error feedback: what is not sent in a step is added in the next. auto: as the traits advise; on: the
            usual kind of this compressor.
    """

    traits: Traits
    """Of the class, or set in the constructor where they depend on parameters."""
    usual_feedback: ClassVar[Literal["plain", "ef21", "momentum"]] = "plain"
    """What `feedback=on` gives, and `auto` where the traits ask for feedback."""
    sends_some: ClassVar[bool] = False
    """Of a bucket some entries alone go out in a step."""
    wants_link: bool = False
    """Its contexts' alpha_s and beta_s_byte are to be measured while it runs, and agreed on by all ranks."""

    def __init__(self, *, feedback: FeedbackMode = "auto") -> None:
        self.feedback: str = ("on" if feedback else "off") if isinstance(feedback, bool) else feedback

    @abstractmethod
    def payload_bytes(self, layout: Layout, context: Context) -> int:
        """Size of the payload of `layout`, a bucket or a stretch of one, in the step of `context`.

        Exact if `traits.fixed_size`, else an estimate for choosing the route. All ranks must find the same.
        """

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        """Return the payload of `tensor`, 1-D, any float, any stride, which is left as it is and shares no memory."""
        raise PointToPointError(type(self).__name__)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        """Write `scale` times what `payload` carries into `out`, 1-D, any float, or add it.

        Args:
            context: what `encode` was given; for a sum of payloads, what it was given on any rank.

        Raises:
            PayloadError: the payload cannot be one of this compressor's for a tensor of this size.
        """
        raise PointToPointError(type(self).__name__)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        """Leave the mean over ranks in `out`, the same bits on every rank.

        All ranks ask for the same exchanges; there may be none in a step.

        Args:
            tensor: what this rank has, float32; changed only where `error` is the same tensor.
            error: filled with `tensor` minus what this rank contributed, so that the mean over ranks of what they
                contributed is `out`. May be `tensor` itself; never `out`.
            out: may be `tensor` itself where there is no `error`.
        """
        assert context.route in ROUTES, f"{type(self).__name__} has no rounds for {context.route}"
        yield from ROUTES[context.route](self, tensor, context, out, error)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        """Bytes all ranks together send to reduce one bucket; exact if `traits.fixed_size`."""
        return route_sent_bytes(self, layout, world_size, route, step)

    def adopt(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """The optimizer that applies what this compressor leaves: the given one, which it may change and keep parts of,
        or another over the same parameters. Called once before the first step, where `traits.owns` says so.

        Raises:
            ValueError: this compressor does not go with an optimizer of that kind.
        """
        return optimizer

    @property
    def feedback_kind(self) -> str:
        """One of FEEDBACK_KINDS, or "off"."""
        if self.feedback == "auto":
            return self.usual_feedback if self.traits.feedback in ("recommended", "required") else "off"
        return self.usual_feedback if self.feedback == "on" else self.feedback

    @property
    def uses_feedback(self) -> bool:
        return self.feedback_kind != "off"

    def faults(self, world_size: int) -> Iterator[str]:
        """Why it cannot do what its parameters ask for among so many ranks, one line each."""
        name, traits = type(self).__name__, self.traits
        if traits.max_world is not None and world_size > traits.max_world:
            sums = "sums" if traits.sum_dtype is None else f"{traits.sum_dtype} sums".removeprefix("torch.")
            yield f"workers={world_size}: {name} sums at most {traits.max_world} ranks before its {sums} overflow"
        if not self.uses_feedback:
            return
        if traits.feedback == "harmful" and not traits.averages:
            yield (
                f"feedback={self.feedback}: what comes out of {name} is a vote without magnitude, which pays no"
                " residuals back; kept, they would outgrow the gradients"
            )
        elif traits.feedback == "harmful":
            kind = "is unbiased, its errors average" if traits.unbiased else "errs by chance, its errors mostly average"
            yield f"feedback={self.feedback}: {name} {kind} out by themselves; kept as residuals they add up instead"
        elif traits.feedback == "builtin":
            yield f"feedback={self.feedback}: {name} keeps what it does not send by a rule of its own"
        elif self.feedback_kind == "momentum" and not self.sends_some:
            yield (
                f"feedback=momentum: of {name} every entry changes in every step, so that every velocity would begin"
                " anew each time; it is for what sends some entries and leaves others"
            )
        elif self.feedback_kind == "ef21" and traits.contraction is None:
            yield f"feedback=ef21: needs a contraction, which {name} does not promise to be"

    def state_dict(self) -> dict[str, Any]:
        """Everything the next payload depends on, besides its arguments: tensors, numbers, text, and lists and
        dictionaries of them, so that `torch.load(..., weights_only=True)` reads it."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state; {} is that of the beginning."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, found {', '.join(state)}")

    def move_state(self, state: dict[str, Any], old: Sequence[Layout], new: Sequence[Layout]) -> dict[str, Any]:
        """`state` for the same parameters in other buckets; layouts have names. Here: it begins anew."""
        return {}
