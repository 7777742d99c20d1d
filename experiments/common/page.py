"""Regions of pages that are generated, and what a page says of points that are missing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from experiments.common.benchmark import Point

_MAX_NAMED = 8


def missing_line(missing: Sequence[Point], measured: int) -> str:
    """Return how many points were never measured, and the first of them."""
    named = ", ".join(f"`{point.key}`" for point in missing[:_MAX_NAMED])
    more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
    return f"{len(missing)} of {measured + len(missing)} points were never measured: {named}{more}"


def not_measured(missing: Sequence[Point], measured: int) -> str:
    """Return what a page says of points that were never measured."""
    return f"**Not measured**: {len(missing)} of {measured + len(missing)} points."


def between(text: str, name: str, content: str) -> str:
    """Return `text` with `content` between the markers of `name`.

    Raises:
        ValueError: The text does not have the markers once.
    """
    pattern = re.compile(rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", re.DOTALL)
    found, count = pattern.subn(lambda match: f"{match[1]}{content}\n{match[2]}", text)
    if count != 1:
        raise ValueError(f"the markers of {name} are not there once")
    return found
