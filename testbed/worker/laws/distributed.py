"""Laws of real groups of 2, 3 and 4 ranks over gloo, beside what the same ranks do in lockstep in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from compressors.base.feedback import ErrorFeedback
from testbed.core.spec.run_spec import Part
from testbed.worker.laws.cases.catalogue import case
from testbed.worker.laws.cases.registry import (
    LAYOUT,
    Case,
    LawBroken,
    Need,
    gradients,
    lacking,
    require,
    require_close,
    require_equal,
)
from testbed.worker.laws.cases.steps import EARLIER, take_step
from testbed.worker.laws.cases.variants import variants
from testbed.worker.laws.judge import Row
from testbed.worker.laws.process_group import MIDDLE, STEPS, WORLD_SIZES, Found, feedbacks_of, key_of, member, run_group

SUMMED_APART = 1e-4
"""Of the largest of a mean: what may come of sums in another order, which go through divisions and roots on the way."""


@dataclass(frozen=True)
class Group:
    """What a group of real ranks did, and what it should have done."""

    case: Case
    feedback: str
    ranks: list[Found]

    @property
    def world_size(self) -> int:
        return len(self.ranks)

    @property
    def is_plain(self) -> bool:
        """Whether residuals are those of plain feedback, round what has none of its own."""
        return isinstance(member(self.case, self.feedback), ErrorFeedback)

    def __str__(self) -> str:
        words = (f"{self.world_size} ranks", self.case.variant, self.case.route.value, f"feedback {self.feedback}")
        return ", ".join(filter(None, words))

    def sent(self, what: str = "sent") -> list[int]:
        """By step, of all ranks."""
        return [sum(step) for step in zip(*(rank[what] for rank in self.ranks), strict=True)]

    @cached_property
    def lockstep(self) -> Expected:
        ranks = [member(self.case, self.feedback) for _ in self.ranks]
        means, sent, exact = [], [], True
        for step in range(-self.case.first_step, STEPS):
            seed = step if step >= 0 else EARLIER + self.case.first_step + step
            found, _, tally = take_step(self.case, ranks, gradients(LAYOUT, self.world_size, seed=seed), step=step)
            exact &= not tally.sums_floats or self.world_size == 2
            if step >= 0:
                means.append(found[0])
                sent.append(tally.sent_bytes)
        return Expected(means, sent, exact)


@dataclass(frozen=True)
class Expected:
    means: list[Tensor]
    sent: list[int]
    exact: bool
    """Whether a sum could come out in one way only."""


def same_mean(group: Group) -> None:
    for step in range(STEPS):
        for rank, found in enumerate(group.ranks):
            require_equal(
                found["means"][step], group.ranks[0]["means"][step], f"step {step}, rank {rank} beside rank 0"
            )


def as_in_lockstep(group: Group) -> None:
    expected = group.lockstep
    for step, (mean, theirs) in enumerate(zip(group.ranks[0]["means"], expected.means, strict=True)):
        what = f"step {step} beside lockstep"
        if expected.exact:
            require_equal(mean, theirs, what)
        elif group.case.traits.sum_dtype is not None:
            scale = torch.stack([t.abs() for s in range(step + 1) for t in gradients(LAYOUT, group.world_size, seed=s)])
            require_close(mean, theirs, scale.sum(dim=0) + theirs.abs(), LAYOUT, group.case.precision, what)
        else:
            off, largest = float((mean - theirs).abs().max()), float(theirs.abs().max())
            allowed = max(SUMMED_APART, 8 * torch.finfo(group.case.precision).eps) * largest
            require(off <= allowed, f"{what}: off by {off:g}, where {allowed:g} may come of the order of sums")


def bytes_counted(group: Group) -> None:
    expected = group.lockstep
    for step, sent in enumerate(group.sent()):
        if group.case.traits.fixed_size:
            for rank, found in enumerate(group.ranks):
                declared = found["declared"][step]
                require(
                    sent == declared, f"step {step}: the communicator counted {sent} bytes, rank {rank}: {declared}"
                )
        else:
            counted = expected.sent[step]
            require(sent == counted, f"step {step}: the communicator counted {sent} bytes, lockstep {counted}")


def nothing_lost(group: Group) -> None:
    tensors = [gradients(LAYOUT, group.world_size, seed=step) for step in range(STEPS)]
    given = torch.stack([torch.stack(step).double().mean(dim=0) for step in tensors]).sum(dim=0)
    applied = torch.stack([mean.double() for mean in group.ranks[0]["means"]]).sum(dim=0)
    residuals = torch.stack([rank["residual"].double() for rank in group.ranks])
    seen = [*(t for step in tensors for t in step), *group.ranks[0]["means"], *residuals]
    scale = torch.stack([*(t.double().abs() for t in seen)]).amax(dim=0) * STEPS
    found = applied + residuals.mean(dim=0)
    require_close(found, given, scale, LAYOUT, group.case.precision, f"after {STEPS} steps")


def resumes(group: Group) -> None:
    for rank, found in enumerate(group.ranks):
        for step, mean in zip(range(MIDDLE, STEPS), found["resumed_means"], strict=True):
            require_equal(mean, found["means"][step], f"rank {rank}, step {step} from a checkpoint")
    again, before = group.sent("resumed_sent"), group.sent()[MIDDLE:]
    require(again == before, f"sent {again} bytes from a checkpoint, {before} without")


@dataclass(frozen=True)
class GroupLaw:
    """One law of groups."""

    check: Callable[[Group], None]
    says: str
    needs: tuple[Need, ...] = ()
    needs_residuals: bool = False
    """Looks at groups under plain feedback alone."""

    def looks_at(self, group: Group) -> bool:
        if lacking(self.needs, group.case) is not None:
            return False
        return not self.needs_residuals or group.is_plain


GROUP_LAWS: dict[str, GroupLaw] = {
    "group-same-mean": GroupLaw(same_mean, "Real ranks get the same bits."),
    "group-lockstep": GroupLaw(
        as_in_lockstep,
        "Real ranks get what ranks in lockstep get, bit for bit where sums have one order.",
    ),
    "group-bytes": GroupLaw(
        bytes_counted, "The communicator counts the bytes that were declared, or those of lockstep."
    ),
    "group-nothing-lost": GroupLaw(
        nothing_lost,
        "Under feedback, what came in is what was applied and what is kept.",
        ("averages",),
        needs_residuals=True,
    ),
    "group-resume": GroupLaw(resumes, "Resumed from a checkpoint in the middle, real ranks go on with the same bits."),
}


def judge_groups(parts: Sequence[Part], world_sizes: Sequence[int] = WORLD_SIZES) -> dict[str, list[Row]]:
    """Rows of the laws of groups, by the compressor's name; all compressors in one set of processes."""
    found = run_group(parts, world_sizes)
    return {part.name: list(_rows(case(part), found, world_sizes)) for part in parts}


def _rows(case: Case, found: Sequence[dict[str, Found]], world_sizes: Sequence[int]) -> Iterator[Row]:
    error = found[0].get(case.name)
    groups = [] if error else list(_groups(case, found, world_sizes))
    for name, law in GROUP_LAWS.items():
        if why := lacking(law.needs, case):
            yield Row(name, "does not apply", why)
            continue
        broken = [error["error"]] if error else []
        looked_at = [group for group in groups if law.looks_at(group)]
        if not looked_at and not error:
            broken.append("no group was looked at")
        for group in looked_at:
            try:
                law.check(group)
            except LawBroken as what:
                broken.append(f"{group}: {what}")
        yield Row(name, "broken", "; ".join(broken)) if broken else Row(name, "holds")


def _groups(case: Case, found: Sequence[dict[str, Found]], world_sizes: Sequence[int]) -> Iterator[Group]:
    for world_size in world_sizes:
        for variant in variants(case):
            for routed in variant.on_each_route():
                for feedback in feedbacks_of(routed, world_size):
                    key = key_of(routed, feedback, world_size)
                    yield Group(routed, feedback, [rank[key] for rank in found[:world_size]])
