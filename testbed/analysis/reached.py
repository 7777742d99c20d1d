"""What it took a run to reach its target: seconds, and bytes over the WAN until then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from testbed.analysis.curves import curves_of
from testbed.analysis.load import Record


def reached(records: Sequence[Record]) -> list[dict[str, Any]]:
    """{"run_id", "time_to_target_s", "wan_bytes"} of each; null where it was not reached, or nothing was counted."""
    found = []
    for record, curves in zip(records, curves_of(records), strict=True):
        seconds = ((record.summary or {}).get("metric") or {}).get("time_to_target_s")
        sent = None if seconds is None else curves.wan_bytes_until(seconds)
        found.append({"run_id": record.run_id, "time_to_target_s": seconds, "wan_bytes": sent})
    return found
