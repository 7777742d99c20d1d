"""The table of codecs: shares of a copy's speed, and what they make of the values."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.common.tables import Found, grouped, number, table


def codecs(points: Sequence[Found]) -> str:
    """One row a member: shares of a copy's speed at the largest size, and what it makes of the values."""
    rows = []
    for (name,), results in grouped(points, "compressor").items():
        found: dict[tuple[str, int, int], Found] = {
            (one["allocator"], row["threads"], row["numel"]): row
            for one in results
            for row in one["rows"]
            if "skipped" not in row
        }
        largest = max((numel for _, _, numel in found), default=0)
        row = found.get(("kept", 1, largest))
        if row is None:
            continue
        others = [found.get(key) for key in (("kept", 2, largest), ("default", 1, largest))]
        smaller = [found.get(("kept", 1, 1 << bits)) for bits in (10, 16, 20)]
        rows.append(
            [
                name,
                number(row["bits"], ".3f"),
                number(row["relative_error"], ".4f"),
                number(row["cosine"], ".4f"),
                number(row["encode_s"] and 4 * largest / row["encode_s"], ".2f", 1e-9),
                number(row["decode_s"] and 4 * largest / row["decode_s"], ".2f", 1e-9),
                *(number(one and one["share"], ".3f") for one in (row, *others)),
                *(number(one and one["both_s"], ".0f", 1e6) for one in smaller),
            ]
        )
    heads = (
        *("compressor", "bits an element", "relative error", "cosine", "encode, GB/s", "decode, GB/s"),
        *("share of clone", "two threads", "default allocator", "1 K: us", "64 K: us", "1 M: us"),
    )
    return table(heads, rows)
