"""The table of one transfer at several dilations."""

from __future__ import annotations

from typing import Any

from experiments.benchmarks.dilation import tables


def test_a_slowed_transfer_is_held_against_all_repeats_at_once() -> None:
    def repeat(k: int, number: int, *warm_s: float) -> dict[str, Any]:
        asked = {"what": "all_reduce", "congestion": "reno", "k": k, "repeat": number}
        result = {"first_s": 2.0, "warm_s": list(warm_s), "median_s": 0.0}
        return {"asked": asked, "result": result, "is_disturbed": False, "others_cores": 0.0}

    text = tables.dilation([repeat(1, 0, 1.0, 1.0), repeat(1, 1, 1.2, 1.2), repeat(2, 0, 1.2, 1.2, 1.2)])
    assert text.splitlines()[-2].split(" | ")[5:] == ["1.100", "+0.0", "reported |"]
    assert text.splitlines()[-1].split(" | ")[5:] == ["1.200", "+9.1", "outside |"]
