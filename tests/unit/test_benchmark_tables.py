"""The tables of the benchmarks: what they mark, and that they stay between their markers."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.benchmarks import document, tables
from experiments.benchmarks.harness import Point, Results

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


def point(*, busy: bool = True, **result: Any) -> dict[str, Any]:
    asked = {"rate_bit_s": 100e6, "rtt_s": 0.1, "busy": busy}
    return {"asked": asked, "result": {**INSIDE, **result}, "is_disturbed": False, "others_cores": 0.0}


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        (point(), []),
        (point(burst_rate_bit_s=98.9e6), ["rate"]),
        (point(burst_rate_bit_s=None), ["rate"]),
        (point(rtt_p50_s=0.1011), ["median RTT"]),
        (point(rtt_p99_s=0.1011), ["p99 RTT"]),
        (point(rtt_p99_s=0.1011, busy=False), []),
        (point(probes=0), ["no probe"]),
    ],
)
def test_a_point_outside_its_target_is_marked(found: dict[str, Any], faults: list[str]) -> None:
    assert tables.accuracy_faults(found) == faults
    row = tables.of("accuracy", [found]).splitlines()[-1]
    assert ("inside" in row) == (not faults)


def test_a_table_replaces_what_was_between_its_markers_and_nothing_else() -> None:
    page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n<!-- y: begin -->\n<!-- y: end -->\n"
    assert document.between(page, "x", "new") == page.replace("old", "new")
    with pytest.raises(ValueError, match="z"):
        document.between(page, "z", "new")


def test_the_page_has_a_place_for_every_table() -> None:
    text = document.PAGE.read_text()
    for name in tables.NAMES:
        assert document.between(text, name, "") != ""


def test_of_two_disturbed_measurements_the_less_disturbed_stays(tmp_path: Any) -> None:
    results = Results(tmp_path, "accuracy")
    asked = Point({"rate_bit_s": 1e6}, 1)
    for others in (0.5, 0.3, 0.9):
        results.keep(asked, "code", {"others_cores": others, "is_disturbed": True, "result": {}})
    (kept,) = Results(tmp_path, "accuracy").found()
    assert kept["others_cores"] == 0.3
    assert not results.has(asked, "code")
    assert results.is_disturbed(asked, "code") and not results.is_disturbed(asked, "other code")
