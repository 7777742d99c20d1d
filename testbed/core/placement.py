"""Which rank runs where: plain arithmetic, no processes."""

from __future__ import annotations


def workers_per_region(workers: int, regions: int) -> tuple[int, ...]:
    """Spread `workers` over `regions` in blocks, the first regions one larger where it does not divide.

    >>> workers_per_region(5, 2)
    (3, 2)

    Raises:
        ValueError: a region would stay empty.
    """
    if regions < 1 or workers < regions:
        raise ValueError(
            f"workers={workers}: {regions} regions need at least one worker each; ask for {regions} or more"
        )
    base, extra = divmod(workers, regions)
    return tuple(base + (1 if index < extra else 0) for index in range(regions))
