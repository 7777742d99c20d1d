"""What a law is, what it is asked about, and the register of all laws.

A law is a function that takes a `Case` and returns if it holds; if not, it raises `LawBroken` with what was found.
Modules of this package add theirs with `@law`; `judge` knows them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Layout, Route, Traits

Need = Literal[
    "point_to_point",
    "collective",
    "own_rounds",
    "summed",
    "counted",
    "averages",
    "contraction",
    "feedback_choice",
    "cuda",
]
NEEDS: dict[Need, tuple[Callable[[Case], bool], str]] = {
    "point_to_point": (lambda case: case.traits.point_to_point, "it has no payload of its own"),
    "collective": (lambda case: not case.traits.point_to_point, "it works point to point"),
    "own_rounds": (lambda case: case.traits.own_rounds, "it has no rounds of its own"),
    "summed": (lambda case: case.traits.sum_dtype is not None, "its payloads are not summed"),
    "counted": (
        lambda case: case.traits.sum_dtype is not None or case.traits.max_world is not None,
        "its payloads are not summed, and it declares no largest group",
    ),
    "averages": (lambda case: case.traits.averages, "what comes out is declared to be no mean"),
    "contraction": (lambda case: case.traits.contraction is not None, "it promises no contraction"),
    "feedback_choice": (lambda case: case.takes_feedback, "its constructor takes no `feedback`"),
    "cuda": (lambda case: torch.cuda.is_available(), "there is no CUDA device here"),
}
"""When a law applies, and why it does not otherwise."""
LAYOUT = Layout(((24, 3, 3, 3), (24,), (40, 50), (40,), (1,)))
"""Matrices, vectors, and a number of elements that is no multiple of anything."""


class LawBroken(Exception):
    """What was found in place of what the law says."""


def require(holds: object, found: str) -> None:
    """
    Raises:
        LawBroken: it does not hold.
    """
    if not holds:
        raise LawBroken(found)


@dataclass(frozen=True)
class Case:
    """One compressor, and the route on which it is looked at."""

    name: str
    build: Callable[..., Compressor]
    """A fresh one; keyword arguments in place of its parameters."""
    chosen: Route | None = None
    """None: the first that its traits allow."""
    foreign: Callable[[], Sequence[tuple[str, bytes]]] = list
    """Payloads of others for 300 elements, by name."""
    target: str = ""
    """Its class, as a spec names it; variants are found by it, since anyone may take any name."""
    variant: str = ""
    """What sets it apart from the case that it is a variant of."""
    first_step: int = 0
    """Where laws begin; ranks go through the steps before as they would in a run."""
    sums_in: torch.dtype | None = None
    """The coarsest in which rounds of its own have floats summed, where that is not float32."""

    @property
    def called(self) -> str:
        return f"{self.name} {self.variant}".rstrip()

    def make(self, **params: object) -> Compressor:
        if not self.takes_feedback:
            params.pop("feedback", None)
        return self.build(**params)

    @cached_property
    def traits(self) -> Traits:
        return self.build().traits

    @property
    def precision(self) -> torch.dtype:
        """Of sums on their way."""
        return self.sums_in or precision_of(self.traits)

    @cached_property
    def takes_feedback(self) -> bool:
        try:
            self.build(feedback="off")
        except TypeError:
            return False
        except ValueError:  # beside its other parameters it may have no meaning
            return True
        return True

    @property
    def route(self) -> Route:
        return self.chosen or routes(self.traits)[0]

    def on_each_route(self) -> Iterator[Case]:
        for route in routes(self.traits):
            yield replace(self, chosen=route)


def routes(traits: Traits) -> list[Route]:
    """All that traits allow."""
    if traits.own_rounds:
        return [Route.OWN]
    if traits.sum_dtype is not None:
        return [Route.REDUCE_SUM]
    return [Route.GATHER, Route.TWO_SHOT] if traits.chunkable else [Route.GATHER]


def lacking(needs: Sequence[Need], case: Case) -> str | None:
    """Why a law with these needs does not apply to `case`; None where it does."""
    return next((why for test, why in map(NEEDS.__getitem__, needs) if not test(case)), None)


@dataclass(frozen=True)
class Law:
    """One law."""

    name: str
    says: str
    """In one sentence."""
    check: Callable[[Case], None]
    per_route: bool
    """Looked at on each route that the traits allow."""
    needs: tuple[Need, ...]

    def lacks(self, case: Case) -> str | None:
        """Why it does not apply to `case`; None where it does."""
        return lacking(self.needs, case)


BOOK: dict[str, Law] = {}


def law(name: str, says: str, *needs: Need, per_route: bool = False) -> Callable[[Callable[[Case], None]], Law]:
    """Enter the function below into the book."""

    def enter(check: Callable[[Case], None]) -> Law:
        assert name not in BOOK, f"two laws are called {name}"
        BOOK[name] = Law(name, says, check, per_route, needs)
        return BOOK[name]

    return enter


def gradients(layout: Layout, world_size: int, seed: int = 0) -> list[Tensor]:
    """Heavy-tailed, of very different sizes from one tensor to the next, as gradients are."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.cat(
            [
                torch.randn(torch.Size(shape).numel(), generator=generator).pow(3) * 10.0 ** (-index)
                for index, shape in enumerate(layout.shapes)
            ]
        )
        for _ in range(world_size)
    ]


def precision_of(traits: Traits) -> torch.dtype:
    """Of sums of payloads on their way."""
    return traits.sum_dtype if traits.sum_dtype and traits.sum_dtype.is_floating_point else torch.float32


def require_close(
    found: Tensor, expected: Tensor, scale: Tensor, layout: Layout, precision: torch.dtype, what: str
) -> None:
    """Equal up to the rounding of a sum of a few, of each tensor of the layout by its own magnitude in `scale`."""
    info = torch.finfo(precision)
    pieces = zip(*(tensor.split(layout.numels) for tensor in (found, expected, scale)), strict=True)
    for shape, (ours, theirs, magnitude) in zip(layout.shapes, pieces, strict=True):
        # Below its smallest normal, a number is off by a part of that.
        allowed = 8 * info.eps * max(float(magnitude.abs().max()), info.tiny)
        off = float((ours.double() - theirs.double()).abs().max())
        require(off <= allowed, f"{what}: off by {off:g} in a tensor of shape {shape}, where {allowed:g} is rounding")


def require_equal(found: Tensor, expected: Tensor, what: str) -> None:
    """The same bits, but that NaN is NaN."""
    if not torch.equal(found, expected) and not torch.equal(found.nan_to_num(), expected.nan_to_num()):
        different = int((found != expected).sum())
        raise LawBroken(f"{what}: {different} of {found.numel()} elements differ")
