"""The table of measured timelines, of points made up, and the points that are measured."""

from __future__ import annotations

from typing import Any

from experiments.benchmarks.timelines import measure, tables
from testbed.core.device.timelines.timeline_library import measured


def test_every_model_is_measured_with_its_largest_batch_in_each_precision() -> None:
    clocks = [one.asked for one in measure.points(quick=False) if one.asked["where"] == "clock"]
    assert len({one["model"] for one in clocks}) == 16 and len(clocks) == 21
    assert all(point.asked["where"] == "clock" for point in measure.points(quick=True))


def test_a_gradient_is_held_against_the_one_of_its_shape_and_place() -> None:
    timeline = measured("h200", "vgg16", "tf32", 64)
    rows = timeline.without_hooks().gradient_ready_s
    exact = measure.against(timeline, [shape for _, shape, _ in rows], [at_s for *_, at_s in rows])
    assert exact["beyond"] == 0 and abs(exact["worst_error"]) < 1e-9
    late = measure.against(timeline, [shape for _, shape, _ in rows], [1.1 * at_s for *_, at_s in rows])
    assert late["beyond"] == late["gradients"] == exact["gradients"] > 0


def test_the_table_shows_the_worst_phase_and_the_worst_gradient() -> None:
    result: dict[str, Any] = {
        "batch_size": 64,
        "scale": 20,
        "host_limited": False,
        "hooks": 1.02,
        "wanted": {"forward": 0.1, "backward": 0.2, "optimizer": 0.0001},
        "measured": {"forward": 0.101, "backward": 0.196, "optimizer": 0.001},
        "dilation": 12.0,
    }
    clock = result | {"gradients": 30, "worst_gradient": "fc.weight", "worst_error": -0.013, "beyond": 0}
    points = [
        {"asked": {"model": "vgg16", "precision": "tf32", "where": where}, "result": found}
        for where, found in (("clock", clock), ("run", result | {"verdict": "valid"}))
    ]
    lines = tables.timelines(points).split("\n")
    told = ("| vgg16 | tf32 | 64 | 20 |", "| +2.0 | no | -2.00 | -4000 | -0.70 |")
    assert lines[2] == " one paced worker ".join(told) + " 30 | -1.30 | fc.weight | 0 | 12 |  |"
    assert lines[3] == " a whole run ".join(told) + "  | - |  |  | 12 | valid |"
