"""The tables of `longhaul budget`: one unit a column."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from testbed.orchestrator.search.budget.table import check_table


def point(step_s: float, sent: float, **changes: Any) -> dict[str, Any]:
    step = {"estimate": step_s, "low": 0.9 * step_s, "high": 1.1 * step_s}
    told = {"strategy": "ddp", "compressor": "topk", "rtt_s": 0.02, "rate_bit_s": 2.5e7, "step_s": step}
    measured = {"measured_step_s": step_s, "measured_wan_bytes_step": sent, "error": 0.0, "is_within": True}
    told |= {"wan_bytes_step": {"estimate": sent}, "meets_target": True, "verdict": "valid", "run_id": "r", **measured}
    return told | changes


def test_what_was_checked_has_one_unit_a_column() -> None:
    console = Console(width=220)
    with console.capture() as said:
        console.print(check_table([point(0.05, 3e5), point(0.3, 2e6, rate_bit_s=1e9)]))
    text = said.get()
    for heading in ("round trip (ms)", "rate (Mbit/s)", "predicted (ms)", "measured (ms)", "WAN bytes predicted (kB)"):
        assert heading in text
    assert "50 (45 to 55)" in text and "300 (270 to 330)" in text and " 1000 " in text and " 2000 " in text
