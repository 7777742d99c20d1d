"""Rules of tensor fusion: which gradients share a collective. One implementation for runs and for their simulation.

Tensors come in the order in which backward reaches them, the reverse of the model's; a bucket is a run of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from testbed.core.spec.run_spec import NATIVE, RunSpec

BY_TIMES = "mg_wfbp"
"""The rule that goes by how long layers and links take."""
RULES = ("size", "first_small", "one", "layers", BY_TIMES)
TUNED = "tuned"
"""By size, which is searched during the run."""
FIRST_SHARE = 25
"""The first of `first_small` is so many times smaller than the others: torch's buckets are of 1 and then 25 MiB."""


@dataclass(frozen=True)
class Gradient:
    """Of one tensor."""

    size_bytes: int
    layer: str
    """The module that has the tensor."""
    backward_s: float = 0.0
    """Of backward, from the tensor before to this one."""


@dataclass(frozen=True)
class Cost:
    """Of a collective, alpha + beta m."""

    start_s: float
    second_byte: float

    def of(self, size_bytes: int) -> float:
        return self.start_s + self.second_byte * size_bytes

    @classmethod
    def fitted(cls, seconds: Callable[[float], float], size_bytes: float) -> Cost:
        """To what a collective of one byte and one of `size_bytes` take; one of nothing sends no message."""
        start_s = seconds(1)
        return cls(start_s, (seconds(size_bytes) - start_s) / size_bytes)


def untimed_faults(spec: RunSpec) -> Iterator[str]:
    """Yield why buckets cannot go by times in a run that is not calibrated: there are none before it computes."""
    if spec.strategy.params.get("fusion") == BY_TIMES and spec.device.target == NATIVE:
        yield (
            f"strategy.fusion={BY_TIMES}: needs times of layers, and those of device={spec.device.name} are known"
            " here only as it computes; use another rule, or a device that has times, such as device=paced"
        )


def cut(gradients: Sequence[Gradient], rule: str, size_bytes: int, cost: Cost | None = None) -> list[int]:
    """How many of `gradients` each bucket takes, in order.

    Args:
        rule: "size": as many as do not exceed `size_bytes`; a larger one is alone. "first_small": likewise, but for the
            first bucket, which is `FIRST_SHARE` times smaller, so that sending begins early. "one": all. "layers":
            those of a layer, which is no fusion. "mg_wfbp": as `merged`.
        cost: of the collective that carries a bucket; for "mg_wfbp".
    """
    if rule == "one":
        return [len(gradients)] if gradients else []
    if rule == "layers":
        return _runs([a.layer != b.layer for a, b in itertools.pairwise(gradients)], len(gradients))
    if rule == BY_TIMES:
        assert cost is not None
        return merged(gradients, cost)
    first = max(1, size_bytes // FIRST_SHARE) if rule == "first_small" else size_bytes
    counts: list[int] = []
    filled = 0
    for gradient in gradients:
        if not counts or filled + gradient.size_bytes > (first if len(counts) == 1 else size_bytes):
            counts.append(0)
            filled = 0
        counts[-1] += 1
        filled += gradient.size_bytes
    return counts


def merged(gradients: Sequence[Gradient], cost: Cost, apart: Sequence[bool] = ()) -> list[int]:
    """Merged-gradient wait-free backpropagation: Shi et al., "MG-WFBP: Efficient Data Communication for Distributed
    Synchronous SGD Algorithms", INFOCOM 2019, arXiv:1811.11141.

    A bucket takes in the next tensor if that one is there before the bucket could have been sent, because another one
    is under way until then, or if waiting for it costs less than the start of a collective of its own. Differs from
    the paper: by tensor, not by layer, and decided once, in the order of backward, from times that are known before.

    Args:
        apart: for each tensor but the last, whether the next may not share its bucket; empty where all may. The link
            is as busy after such a cut as after any other.

    Raises:
        ValueError: `apart` is of another length.
    """
    apart = apart or [False] * (len(gradients) - 1)
    cuts: list[bool] = []
    ready_s, free_s, filled = 0.0, 0.0, 0
    for (gradient, after), is_apart in zip(itertools.pairwise(gradients), apart, strict=True):
        ready_s += gradient.backward_s
        filled += gradient.size_bytes
        begin_s, next_s = max(free_s, ready_s), ready_s + after.backward_s
        is_cut = is_apart or (next_s > begin_s and next_s - begin_s >= cost.start_s)
        cuts.append(is_cut)
        if is_cut:
            free_s, filled = begin_s + cost.of(filled), 0
    return _runs(cuts, len(gradients))


def _runs(cuts: Sequence[bool], count: int) -> list[int]:
    """Lengths of the runs of `count` things that are cut after the ones for which `cuts` says so."""
    ends = [index + 1 for index, is_cut in enumerate(cuts) if is_cut]
    return [end - begin for begin, end in zip([0, *ends], [*ends, count], strict=True) if end > begin]
