"""The table of dilations that were found, against the smallest that would have done."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.first_try.command import is_valid
from experiments.common.tables import Found, disturbed, table


def first_try_scan(points: Sequence[Found]) -> str:
    """Return a row for each configuration; the smallest valid dilation may be the one that was found."""
    rows = []
    for point in points:
        first, scanned = point["result"]["first"], point["result"]["scanned"]
        valid = [one["dilation"] for one in (first, *scanned) if is_valid(one)]
        found = first.get("dilation")
        rows.append(
            [
                f"`{point['asked']['overrides']}`" + disturbed(point),
                f"{first['verdict']}" + ("" if found is None else f", {found:g}"),
                ", ".join(f"{one['dilation']:g} {one['verdict']}" for one in scanned) or "-",
                f"{min(valid):g}" if valid else "-",
                f"{found / min(valid):.3f}" if valid and found is not None else "-",
            ]
        )
    return table(("configuration", "found, k", "scanned, k", "smallest valid k", "found / smallest"), rows)
