"""The README's first table and figure: which runs they are of, and in which order."""

from __future__ import annotations

from typing import Any

from experiments.benchmarks.compression import tables


def made(compressor: str, reached_s: float | None = 4.0, *, topo: str = "wan100m", verdict: str = "valid") -> Any:
    return {
        "asked": {"compressor": compressor, "topo": topo, "workload": "digits", "seed": 0, "repeat": 0},
        "result": {
            "metric": {"name": "accuracy", "value": 0.985, "target": 0.97, "time_to_target_s": reached_s},
            "steps": 80,
            "step_s": 0.25,
            "time_s": 20.0,
            "payload_bytes": 2e8,
            "dense_bytes": 2e9,
            "wan_bytes": 1e8,
            "verdict": verdict,
        },
        "is_disturbed": False,
        "others_cores": 0.0,
    }


POINTS = [
    made("topk", verdict="suspect"),
    made("none", None),
    made("onebit"),
    made("slow", None),
    made("sz3", topo="wan1g"),
]


def test_the_short_table_is_of_some_compressors_on_one_link_in_its_own_order() -> None:
    lines = tables.brief(POINTS).splitlines()
    assert lines[0].startswith("| `COMPRESSOR=` | accuracy | to 97% | 80 steps | step |")
    assert lines[2] == "| `none` | 98.5% | - | 20.0 s | 250 ms | 200.0 MB | 100.0 MB | 10.0 | valid |"
    assert lines[3] == "| `topk` | 98.5% | 4.0 s | 20.0 s | 250 ms | 200.0 MB | 100.0 MB | 10.0 | suspect |"
    assert len(lines) == 4


def test_the_figure_names_those_of_the_table_and_leaves_out_who_never_reached_the_target() -> None:
    drawn = tables.draw(POINTS)
    assert ">topk<" in drawn and not any(f">{name}<" in drawn for name in ("none", "onebit", "slow", "sz3"))
    assert drawn.count("fill: #bbbbbb") == 1, "onebit, a grey point"
