"""The base class of compressors.

A compressor turns a 1-D tensor into a payload (a 1-D uint8 tensor of real packed bytes) and back, and declares its
properties in `traits`. The way in which ranks agree on a mean follows from them: `Route` is derived, never chosen by a
user. A compressor does no I/O: `rounds` yields an `Exchange` for each collective and is resumed with its result, so
that the runtime can time, count and order everything that is sent. Point to point (parameter servers, activations), a
strategy calls `encode` and `decode` itself, with a `Context` whose route is None and whose `stream` names the receiver.
An example is in docs/compressors.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch

from compressors.base.context import Context, Exchange, Feedback, Layout, Rounds, Route, Traits
from compressors.base.routes import SIZE_BYTES, Codec, choose_route, part_layouts
from testbed.core.declaration import Declared
from testbed.core.kinds import Choice
from testbed.core.renaming import Renamed

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


class Compressor(Renamed, Declared, Codec):
    """Base of all compressors; `Codec` has the methods by which gradients pass through it.

    Constructors take keyword-only parameters and raise one ValueError with a line for each bad one.

    Args:
        feedback: Error feedback: add unsent values to the next step. auto: as the compressor's traits advise; on: its
            default kind.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "faults": "validate",
        "usual_feedback": "default_feedback",
        "sends_some": "is_sparse",
        "wants_link": "needs_link_stats",
    }

    default_feedback: ClassVar[Literal["plain", "ef21", "momentum"]] = "plain"
    """Kind of error feedback that `feedback=on` gives, and `feedback=auto` where the traits ask for feedback."""
    is_sparse: ClassVar[bool] = False
    """True for sparsifiers: a step sends a subset of a bucket's entries."""
    needs_link_stats: bool = False
    """True if alpha_s and beta_s_byte of contexts are to be measured during the run, and agreed on by all ranks."""

    def __init__(self, *, feedback: FeedbackMode = "auto") -> None:
        self.feedback: str = ("on" if feedback else "off") if isinstance(feedback, bool) else feedback

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
            return self.default_feedback if self.traits.feedback in ("recommended", "required") else "off"
        return self.default_feedback if self.feedback == "on" else self.feedback

    @property
    def uses_feedback(self) -> bool:
        return self.feedback_kind != "off"

    def validate(self, world_size: int) -> Iterator[str]:
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
        elif self.feedback_kind == "momentum" and not self.is_sparse:
            yield (
                f"feedback=momentum: of {name} every entry changes in every step, so that every velocity would begin"
                " anew each time; it is for what sends some entries and leaves others"
            )
        elif self.feedback_kind == "ef21" and traits.contraction is None:
            yield f"feedback=ef21: needs a contraction, which {name} does not promise to be"

    def prepare(self, tensor: torch.Tensor, context: Context) -> None:
        """Make what is kept from step to step for the bucket of `tensor`; by default nothing.

        Called where its first reduction, which makes it else, comes in mid-run: to touch new memory takes long.
        """

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
