"""What a member does later than in the few steps that a law takes, and what it does where links change."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from compressors.base.compressor import Compressor, Context, Rounds
from compressors.base.wrapper import Wrapper
from testbed.worker.laws.cases.registry import Case
from testbed.worker.laws.cases.steps import sums_in

LINKS = ((0.0, 4e-9), (1e-5, 1e-12), (0.0, 1e-12), (1e-8, 1e-12))
"""(alpha_s, beta_s_byte) by step, over and over. So small that for a bucket of the size of a law's, sparse, quantized,
half and whole values are right in turn."""


@dataclass(frozen=True)
class Later:
    """Parameters that bring what comes later into a law's few steps."""

    says: str
    params: Mapping[str, Any] = field(default_factory=dict)
    first_step: int = 0


LATER: dict[str, Later] = {
    "compressors.onebit_adam.OneBitAdam": Later("after its warm-up", {"warm_up_steps": 1}, first_step=1),
    "compressors.zeroone_adam.ZeroOneAdam": Later(
        "after its freeze",
        # signs are averaged in steps 2, 4, 6, ..., and nothing is sent in those between
        {"variance_renewals": 1, "freeze_step": 2, "interval_steps": 1, "longest_interval": 2},
        first_step=2,
    ),
    "compressors.dgc.DGC": Later("after its warm-up", {"warmup_steps": 0}),
    "compressors.oktopk.OkTopK": Later("with estimates every 2 steps", {"reestimate": 2}),
    "compressors.powersgd.PowerSGD": Later("after a dense step", {"start_step": 1}, first_step=1),
}
"""By class."""


@functools.lru_cache(maxsize=256)
def variants(case: Case) -> tuple[Case, ...]:
    """`case`, and beside it what its first steps do not show of it."""
    found = [case]
    if later := LATER.get(case.target):
        found.append(_with(case, later))
    if case.build().needs_link_stats:
        told = replace(case, build=lambda **params: LinksByStep(case.build(**params)), variant="on other links")
        found.append(replace(told, sums_in=_sums_in(told)))
    return tuple(found)


def _sums_in(case: Case) -> torch.dtype | None:
    try:
        return sums_in(case, len(LINKS))
    except Exception:  # whatever it is, laws meet it too, and say so
        return None


def _with(case: Case, later: Later) -> Case:
    def build(**params: object) -> Compressor:
        return case.build(**{**later.params, **params})

    return replace(case, build=build, variant=later.says, first_step=later.first_step)


class LinksByStep(Wrapper):
    """Tells `inner` of other links in each step."""

    @property
    def feedback_kind(self) -> str:
        return self.inner.feedback_kind

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        alpha_s, beta_s_byte = LINKS[context.step % len(LINKS)]
        told = replace(context, alpha_s=alpha_s, beta_s_byte=beta_s_byte)
        yield from self.inner.rounds(tensor, told, out=out, error=error)
