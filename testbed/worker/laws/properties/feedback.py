"""Laws of error feedback around a compressor: nothing is lost, and it is refused where it does harm."""

from __future__ import annotations

from dataclasses import replace

import torch

from compressors.base.compressor import Compressor
from compressors.base.feedback import EF21, ErrorFeedback
from testbed.worker.laws.cases.lockstep import contexts
from testbed.worker.laws.cases.registry import LAYOUT, Case, gradients, law, require, require_close, require_equal
from testbed.worker.laws.cases.steps import take_step, wrapped_ranks


@law(
    "nothing-lost",
    "Under error feedback, what came in is what was applied and what is kept.",
    "averages",
    per_route=True,
)
def nothing_lost(case: Case) -> None:
    account = Account()
    ranks = wrapped_ranks(case, 4, ErrorFeedback)
    for step in range(6):
        account.step(case, ranks, step)
    account.settle(case, ranks, "after 6 steps of 4 ranks")


class Account:
    """What came in and what was applied, over steps, in the mean over ranks."""

    def __init__(self) -> None:
        self.given = torch.zeros(LAYOUT.numel, dtype=torch.float64)
        self.applied = torch.zeros(LAYOUT.numel, dtype=torch.float64)
        self.largest = torch.zeros(LAYOUT.numel, dtype=torch.float64)

    def step(self, case: Case, ranks: list[ErrorFeedback], step: int) -> None:
        tensors = gradients(LAYOUT, len(ranks), seed=step)
        self.given += torch.stack(tensors).double().mean(dim=0)
        means, _, _ = take_step(case, ranks, tensors, step=step)
        require_equal(means[-1], means[0], f"step {step}: the last rank beside the first")
        kept = [rank.residual(LAYOUT.bucket) for rank in ranks]
        seen = [t.double().abs() for t in [*tensors, *kept, means[0]] if t is not None]
        self.largest = torch.stack([self.largest, *seen]).amax(dim=0)
        self.applied += means[0].double()

    def settle(self, case: Case, ranks: list[ErrorFeedback], what: str) -> None:
        residuals = [rank.residual(LAYOUT.bucket) for rank in ranks]
        require(all(r is not None for r in residuals), "no residual is kept")
        kept = torch.stack([r for r in residuals if r is not None]).double().mean(dim=0)
        scale = torch.stack([self.given.abs(), kept.abs(), self.largest]).amax(dim=0)
        require_close(self.applied + kept, self.given, scale, LAYOUT, case.precision, what)


@law(
    "ef21",
    "Under EF21 the mean over ranks of their estimates is what comes out.",
    "averages",
    "contraction",
    per_route=True,
)
def ef21(case: Case) -> None:
    ranks = wrapped_ranks(case, 3, EF21)
    scale = torch.zeros(LAYOUT.numel)
    for step in range(4):
        tensors = gradients(LAYOUT, 3, seed=step)
        means, errors, _ = take_step(case, ranks, tensors, step=step)
        estimates = torch.stack([t.double() - e.double() for t, e in zip(tensors, errors, strict=True)])
        scale = 3 * torch.stack([scale / 3, *(t.abs() for t in [*tensors, *errors])]).amax(dim=0)
        require_close(means[0], estimates.mean(dim=0), scale, LAYOUT, case.precision, f"step {step}")


@law("streams", "Streams of one bucket keep residuals of their own.", "point_to_point")
def streams(case: Case) -> None:
    codec, alone = ErrorFeedback(case.make()), ErrorFeedback(case.make())
    to = [replace(contexts(LAYOUT, None, 1)[0], stream=f"to {rank}") for rank in (1, 2)]
    for step in range(3):
        first, second = gradients(LAYOUT, 2, seed=step)
        expected = alone.encode(first, replace(to[0], step=step))
        require_equal(codec.encode(first, replace(to[0], step=step)), expected, f"step {step}, beside another stream")
        codec.encode(second, replace(to[1], step=step))


@law("feedback-fits", "Feedback is asked for by what is biased and loses much, and called harmful by what is unbiased.")
def feedback_fits(case: Case) -> None:
    traits = case.traits
    tensor = torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(0))
    _, errors, _ = take_step(case, [case.make()], [tensor])
    lost = float(errors[0].double().square().sum() / tensor.double().square().sum())
    found = f"feedback={traits.feedback}, unbiased={traits.unbiased}, and it loses {lost:.3g} of a Gaussian's energy"
    if traits.unbiased:
        require((traits.feedback == "harmful") == (lost > 1e-9), found)
        return
    if not traits.averages:
        return  # residuals of what is no mean make up for nothing
    if lost >= 1:
        require(traits.feedback == "harmful", f"{found}: residuals would grow without end")
        return
    require(traits.feedback != "harmful", found)
    if traits.feedback != "builtin":
        require((traits.feedback in ("recommended", "required")) == (lost > 0.05), found)


@law("feedback-choice", "Feedback follows the traits unless told.", "feedback_choice")
def feedback_choice(case: Case) -> None:
    wanted = case.traits.feedback in ("recommended", "required")
    require(case.make(feedback="auto").uses_feedback is wanted, f"auto with feedback={case.traits.feedback}")
    for word, uses in (("on", True), (True, True), ("plain", True), ("ef21", True), ("off", False), (False, False)):
        if (made := _with_feedback(case, word)) is not None:
            require(made.uses_feedback is uses, f"feedback={word} gives {not uses}")
    try:
        case.make(feedback="perhaps")
    except ValueError as error:
        require("feedback=perhaps" in str(error), f"feedback=perhaps is refused by {error}, which does not name it")
        return
    require(False, "feedback=perhaps is taken")


@law("refusals", "What it cannot do among so many ranks is refused in a line that says why.")
def refusals(case: Case) -> None:
    traits = case.traits
    require(not list(case.make().validate(2)) or not case.takes_feedback, "two ranks are refused")
    if traits.max_world is not None:
        lines = list(case.make().validate(traits.max_world + 1))
        expected = f"workers={traits.max_world + 1}: "
        require(any(line.startswith(expected) for line in lines), f"no line begins with {expected!r}; found {lines}")
    if not case.takes_feedback:
        return
    for word in ("on", "ef21"):
        refused = traits.feedback in ("harmful", "builtin") or (word == "ef21" and traits.contraction is None)
        if (made := _with_feedback(case, word)) is None:
            continue
        lines = list(made.validate(2))
        right = any(line.startswith("feedback=") and "\n" not in line for line in lines)
        require(right == refused, f"feedback={word} with feedback={traits.feedback}: {lines or 'is not refused'}")


def _with_feedback(case: Case, word: str | bool) -> Compressor | None:
    """None where another parameter has no meaning with it, which a ValueError says."""
    try:
        return case.make(feedback=word)
    except ValueError as error:
        said = word or "off"
        require(f"feedback={said}" in str(error), f"feedback={word} is refused by {error}, which does not name it")
        return None
