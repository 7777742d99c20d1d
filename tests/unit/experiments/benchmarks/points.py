"""A point of the links' accuracy, with figures chosen by hand."""

from __future__ import annotations

from typing import Any

INSIDE: dict[str, Any] = {
    "burst_rate_bit_s": 99.5e6,
    "flow_rate_bit_s": 99e6,
    "flow_full_share": 0.5,
    "goodput_bit_s": 95e6,
    "probes": 210,
    **{f"{way}_{share}_s": 0.0501 for way in ("forward", "backward") for share in ("p50", "p99")},
    "rtt_p50_s": 0.1008,
    "rtt_p99_s": 0.1009,
}


def link_point(*, busy: bool = True, **result: Any) -> dict[str, Any]:
    asked = {"rate_bit_s": 100e6, "rtt_s": 0.1, "busy": busy}
    return {"asked": asked, "result": {**INSIDE, **result}, "is_disturbed": False, "others_cores": 0.0}
