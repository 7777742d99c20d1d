"""Offers of a refused run: those that need its arguments are added, and the first is taken if the user wants that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import Resolved
from testbed.orchestrator.config.grammar.offers import Offer, Refused, applied

MOST_TAKEN = 5
"""Largest number of offers that one run takes: with each it may be refused for something else."""
_MIN_WORKERS = 2
Resolve = Callable[[Sequence[str]], Resolved]
Done = TypeVar("Done")


def taking_first(
    texts: Sequence[str],
    make: Callable[[Sequence[str]], Done],
    resolve: Resolve,
    tell: Callable[[str], None],
    *,
    fix: bool,
) -> Done:
    """Return what `make` returns for the arguments, or for those with offers taken.

    Args:
        tell: Is told which offer is taken.
        fix: Take the first offer of a refusal, and make it again.

    Raises:
        Refused: It is refused; with all that would do.
    """
    for _ in range(MOST_TAKEN if fix else 0):
        try:
            return make(texts)
        except Refused as error:
            refused = completed(error, texts, resolve)
            if not refused.offers:
                raise refused from error
        tell(f"{refused.why}; --fix takes {refused.offers[0]}")
        texts = applied(texts, refused.offers[0])
    try:
        return make(texts)
    except Refused as error:
        raise completed(error, texts, resolve) from error


def completed(error: Refused, texts: Sequence[str], resolve: Resolve) -> Refused:
    """Return the refusal with every offer that its arguments take, fewer workers among them."""
    offers = [one for one in error.offers if not resolve(applied(texts, one)).faults]
    if error.dilation is not None and (fewer := _fewer_workers(error.dilation, texts, resolve)) is not None:
        offers.insert(1, fewer)  # behind the device, which changes nothing that is sent
    return Refused(error.why, offers)


def _fewer_workers(dilation: Callable[[RunSpec], float | None], texts: Sequence[str], resolve: Resolve) -> Offer | None:
    """Return the offer of the largest number of workers that fits; None if no number does that the topology takes."""

    def with_workers(count: int) -> RunSpec | None:
        found = resolve(applied(texts, _workers(count, "")))
        return None if found.faults else found.stand_in

    found = resolve(texts)
    low, high, best = _MIN_WORKERS, (found.spec.workers if not found.faults else 0) - 1, None
    while low <= high:
        count = (low + high) // 2
        spec = with_workers(count)
        if spec is None:  # fewer than the topology has places for
            low = count + 1
        elif (k := dilation(spec)) is None:
            high = count - 1
        else:
            best, low = _workers(count, f"the most that fit, at a dilation of {k:g}"), count + 1
    return best


def _workers(count: int, says: str) -> Offer:
    return Offer({"workers": str(count)}, says)
