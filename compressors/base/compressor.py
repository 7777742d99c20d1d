"""The base class of compressors.

A compressor turns a 1-D tensor into a payload (a 1-D uint8 tensor of real packed bytes) and back, and declares its
properties in `traits`. The way in which ranks agree on a mean follows from them: `Route` is derived, never chosen by a
user. A compressor does no I/O: `rounds` yields an `Exchange` for each collective and is resumed with its result, so
that the runtime can time, count and order everything that is sent. Point to point (parameter servers, activations), a
strategy calls `encode` and `decode` itself, with a `Context` whose route is None and whose `stream` names the receiver.
An example is in docs/compressors.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from compressors.base.context import Context, Exchange, Feedback, Layout, Rounds, Route, Traits
from compressors.base.payload import PointToPointError
from compressors.base.routes import ROUTES, SIZE_BYTES, choose_route, part_layouts, route_sent_bytes
from testbed.core.parameters import choice, raise_all

__all__ = [
    "SIZE_BYTES",
    "Compressor",
    "Context",
    "Exchange",
    "Feedback",
    "Layout",
    "Rounds",
    "Route",
    "Traits",
    "choose_route",
    "part_layouts",
]

FEEDBACK_KINDS = ("plain", "ef21", "momentum")
FEEDBACK_MODES = ("auto", "on", "off", *FEEDBACK_KINDS)


class Compressor(ABC):
    """Base of all compressors.

    Constructors take keyword-only parameters and raise one ValueError with a line for each bad one.
    """

    traits: Traits
    """Promises of the class, or of the object where they depend on parameters; then the constructor sets them."""
    usual_feedback: ClassVar[Literal["plain", "ef21", "momentum"]] = "plain"
    """Kind of error feedback that `feedback=on` gives, and `feedback=auto` where the traits ask for feedback."""
    sends_some: ClassVar[bool] = False
    """True for sparsifiers: a step sends a subset of a bucket's entries."""
    wants_link: bool = False
    """True if alpha_s and beta_s_byte of contexts are to be measured during the run, and agreed on by all ranks."""

    def __init__(self, *, feedback: str | bool = "auto", faults: Iterable[str | None] = ()) -> None:
        """Check the parameters.

        Args:
            feedback: One of FEEDBACK_MODES; True and False mean on and off, as YAML reads these words.
            faults: Errors of other parameters, one line each (see `testbed.core.parameters`), or None.

        Raises:
            ValueError: Every error at once, one a line.
        """
        if isinstance(feedback, bool):  # YAML reads a bare on or off as one
            feedback = "on" if feedback else "off"
        raise_all(choice("feedback", feedback, FEEDBACK_MODES), *faults)
        self.feedback: str = feedback

    @abstractmethod
    def payload_bytes(self, layout: Layout, context: Context) -> int:
        """Return the bytes of the payload of `layout`, a bucket or a part of one, in the step of `context`.

        The number is exact if `traits.fixed_size`, else an estimate by which the route is chosen. All ranks must find
        the same one.
        """

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        """Return the payload of `tensor`: 1-D uint8.

        Args:
            tensor: 1-D, of any float type and stride. It is not changed, and the payload shares no memory with it.

        Raises:
            NonFiniteError: The tensor holds NaN or infinity, which this compressor cannot carry.
            PointToPointError: This compressor works among all ranks only.
        """
        raise PointToPointError(type(self).__name__)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        """Write `scale` times the values that `payload` carries into `out`, or add them.

        Args:
            payload: 1-D uint8, from `encode`, or a sum of such payloads in `traits.sum_dtype`. It is not changed.
            out: 1-D, of any float type, with as many elements as the encoded tensor.
            context: The one `encode` was given; for a sum of payloads, the one of any rank.

        Raises:
            PayloadError: This compressor makes no such payload for a tensor of this size.
            PointToPointError: This compressor works among all ranks only.
        """
        raise PointToPointError(type(self).__name__)

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        """Leave the mean over ranks in `out`, the same bits on every rank.

        Args:
            tensor: Gradients of this rank: 1-D float32. Changed only if `error` is the same tensor.
            error: Filled with `tensor` minus this rank's contribution, so that the mean over ranks of contributions is
                `out`. May be `tensor` itself, never `out`. None: nobody asks for it.
            out: 1-D float32. May be `tensor` itself if there is no `error`.

        Yields:
            The exchanges of this step, the same ones on all ranks; there may be none. The generator is resumed with
            the result of each.

        Raises:
            NonFiniteError: The tensor holds NaN or infinity, which this compressor cannot carry.
            PayloadError: A peer sent bytes that cannot be decoded.
        """
        assert context.route in ROUTES, f"{type(self).__name__} has no rounds for {context.route}"
        yield from ROUTES[context.route](self, tensor, context, out, error)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        """Return the bytes that all ranks together send to reduce one bucket; exact if `traits.fixed_size`."""
        return route_sent_bytes(self, layout, world_size, route, step)

    def adopt(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Return the optimizer that applies the output of this compressor.

        It is the given one, which the compressor may change and keep parts of, or another over the same parameters.
        Called once before the first step if `traits.owns` is not "nothing".

        Raises:
            ValueError: This compressor does not work with an optimizer of that kind.
        """
        return optimizer

    @property
    def feedback_kind(self) -> str:
        """Kind of error feedback in use: one of FEEDBACK_KINDS, or "off"."""
        if self.feedback == "auto":
            return self.usual_feedback if self.traits.feedback in ("recommended", "required") else "off"
        return self.usual_feedback if self.feedback == "on" else self.feedback

    @property
    def uses_feedback(self) -> bool:
        return self.feedback_kind != "off"

    def faults(self, world_size: int) -> Iterator[str]:
        """Yield a line for each reason why it cannot work among `world_size` ranks as its parameters ask."""
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
        """Return everything that the next payload depends on, apart from its arguments.

        Values are tensors, numbers, text, and lists and dictionaries of them, so that `torch.load(...,
        weights_only=True)` reads them.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state, as `state_dict` returns it; {} is that of the beginning.

        Raises:
            ValueError: This compressor keeps no such state.
        """
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, found {', '.join(state)}")

    def move_state(self, state: dict[str, Any], old: Sequence[Layout], new: Sequence[Layout]) -> dict[str, Any]:
        """Return `state` for the same parameters in other buckets. This base class keeps none, so it returns {}.

        Args:
            old: Layouts of the buckets of `state`, with names.
            new: Layouts of the buckets from now on, with names.
        """
        return {}
