"""Which parameters share a bucket: the rules of `core.costs.fusion`, applied to a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import nn

from testbed.core.costs.fusion import Cost, Gradient, cut
from testbed.worker.device.compute_times import ComputeTimes


def grouped(
    parameters: Iterable[nn.Parameter],
    size_bytes: int,
    rule: str = "size",
    names: Mapping[nn.Parameter, str] | None = None,
    times: ComputeTimes | None = None,
    cost: Cost | None = None,
    share: float = 1.0,
) -> list[list[nn.Parameter]]:
    """The parameters of each bucket, in the order in which backward reaches them: the reverse of the model's.

    Args:
        rule: of `core.costs.fusion.RULES`.
        names, times, cost: for the rules that need them.
        share: of a step's backward that reduction overlaps, where it is taken in parts.
    """
    order = [p for p in reversed(list(parameters)) if p.requires_grad]
    gradients = [
        Gradient(
            p.nbytes,
            "" if names is None else names[p].rpartition(".")[0],
            0.0 if times is None else share * times.backward_of([p]),
        )
        for p in order
    ]
    rest = iter(order)
    return [[next(rest) for _ in range(count)] for count in cut(gradients, rule, size_bytes, cost)]
