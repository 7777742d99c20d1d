"""Which parameters share a bucket: the rules of `core.fusion`, applied to a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import nn

from testbed.core.auto_dilation import MESSAGE_CPU_S, OWN_MESSAGE_CPU_S
from testbed.core.collective_costs import cheapest, seconds
from testbed.core.fusion import Cost, Gradient, cut
from testbed.core.spec import RunSpec
from testbed.worker.times import ComputeTimes


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
        rule: of `core.fusion.RULES`.
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


def all_reduce_cost(spec: RunSpec, collective: str, size_bytes: float, width: float) -> Cost:
    """Of sums of buckets over the links of `spec`, by closed form, and what their messages take of a core, which under
    dilation is that much less of an emulated second.

    Args:
        size_bytes: of all gradients, as float32.
        width: bytes sent for a byte of gradient.
    """
    if collective == "auto":
        collective = cheapest("all_reduce", width * size_bytes, spec.topology)
    message_s = (MESSAGE_CPU_S if collective == "gloo" else OWN_MESSAGE_CPU_S) / spec.dilation
    return Cost.fitted(
        lambda size: seconds(collective, "all_reduce", width * size, spec.topology, message_s=message_s), size_bytes
    )
