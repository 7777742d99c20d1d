"""The sweep of GRACE's benchmark: the released figures agree among themselves, and its tables of points made up."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.benchmarks.grace import measure, tables
from experiments.benchmarks.grace.declaration import BENCHMARK
from experiments.benchmarks.grace.published import BY_RATE, CELLS, CELLS_WON, COLUMNS, LEFT_OUT, RATIOS
from experiments.common.harness import code_hash
from experiments.common.papers.declaration import load
from experiments.common.papers.grace import DENSE, METHODS, MODELS


def point(model: str, method: str, **by_rate: dict[str, float]) -> dict[str, Any]:
    steps = {rate.removeprefix("at_"): found for rate, found in by_rate.items()}
    return {
        "asked": {"model": model, "method": method},
        "result": {"step_s": steps, "codec_s": 0.0123},
        "is_disturbed": False,
        "others_cores": 0.0,
    }


def step(core: float, ten: float, free: float) -> dict[str, float]:
    return {"a core": core, "ten times": ten, "free": free}


LSTM = [
    point(
        "LSTM",
        DENSE,
        at_1={**step(1.0, 1.0, 1.0), "after backward": 1.5},
        at_10=step(0.2, 0.2, 0.2) | {"after backward": 0.1},
    ),
    point("LSTM", "randomk 1 %", at_1=step(0.5, 0.3, 0.2), at_10=step(0.3, 0.15, 0.05)),
    point("LSTM", "topk 1 %", at_1=step(1.2, 0.4, 0.2), at_10=step(0.4, 0.3, 0.05)),
    point("LSTM", "powersgd", at_1=step(0.4, 0.3, 0.1), at_10=step(0.5, 0.3, 0.04)),
]


def test_parts_of_the_released_counts_add_up_to_the_whole() -> None:
    assert sum(cells for cells, _ in BY_RATE.values()) == CELLS
    assert sum(wins for _, wins in BY_RATE.values()) == CELLS_WON
    for name, (cells, wins) in BY_RATE.items():
        here = [
            ratio for (_, rate), by in RATIOS.items() if (rate == 1) == name.startswith("1 G") for ratio in by.values()
        ]
        assert len(here) <= cells and sum(ratio > 1 for ratio in here) <= wins


def test_released_ratios_are_those_that_are_spoken_of() -> None:
    assert RATIOS["ResNet-50", 1]["randomk 1 %"] == load("grace").claimed == max(RATIOS["ResNet-50", 1].values())
    never = ("ResNet-20", 10), ("DenseNet-40", 10), ("U-Net", 10)
    assert all(ratio < 1 for column in never for ratio in RATIOS[column].values())
    order = sorted(RATIOS["ResNet-50", 1], key=lambda method: -RATIOS["ResNet-50", 1][method])
    named = ["randomk 1 %", "threshold", "dgc 1 %", "topk 1 %", "efsignsgd", "qsgd"]
    assert [method for method in order if method in named] == named
    assert list(RATIOS) == list(COLUMNS) and {m for by in RATIOS.values() for m in by} == set(METHODS)
    assert {model for model, _ in COLUMNS} - set(MODELS) == set(LEFT_OUT)


def test_a_ratio_is_over_the_faster_dense_step() -> None:
    found = tables.ratios(LSTM, "a core")
    assert found["LSTM", 1] == pytest.approx({"randomk 1 %": 2.0, "topk 1 %": 1 / 1.2, "powersgd": 2.5})
    assert found["LSTM", 10]["randomk 1 %"] == pytest.approx(0.1 / 0.3)
    late = tables.ratios(LSTM, "a core", measure.AFTER_BACKWARD)
    assert late["LSTM", 1]["randomk 1 %"] == pytest.approx(3.0)
    assert tables.ratios(LSTM[1:], "a core") == {}


def test_rank_correlation_is_that_of_ranks() -> None:
    ours = {"a": 1.0, "b": 2.0, "c": 30.0, "d": 4.0, "e": 9.0}
    assert tables.rank_correlation(ours, {"a": 5, "b": 6, "c": 9, "d": 7}) == pytest.approx(1.0)
    assert tables.rank_correlation(ours, {"a": 9, "b": 7, "c": 5, "d": 6}) == pytest.approx(-1.0)
    # ranks 1 2 4 3 against 1.5 1.5 3 4
    assert tables.rank_correlation(ours, {"a": 1, "b": 1, "c": 2, "d": 3}) == pytest.approx(0.7379, abs=1e-4)
    assert tables.rank_correlation(ours, {"a": 1, "b": 2}) is None
    assert tables.rank_correlation(ours, {"a": 1, "b": 1, "c": 1}) is None


def test_what_released_steps_leave_for_codecs_is_none_of_the_fastest() -> None:
    assert tables.beyond_computing_s("randomk 1 %") == pytest.approx(0, abs=1e-4)
    # 96 images of each worker at 0.68 of 275 images/s
    assert tables.beyond_computing_s("topk 1 %") == pytest.approx(96 / (0.68 * 275) - 96 / 385, abs=1e-4)


def test_wins_are_counted_on_the_cells_that_both_have() -> None:
    text = tables.grace(LSTM)
    # released: 1.79, 1.52, 1.88 at 1 Gbit/s; 0.65, 0.98, 2.68 at 10
    assert "wins 2 of 6 cells with codecs as fast as a core, 3 with codecs 10x faster, 6 with free ones" in text
    assert "; 3 against dense gradients sent after backward" in text
    assert "it wins 4 of them, and 78 of all 292 (37 of 81 at 1 Gbit/s, 41 of 211 at" in text
    rows = [line for line in text.splitlines() if line.startswith("| LSTM | 1 |")]
    assert rows == ["| LSTM | 1 | 3 | 3 | 2 | 3 | 3 | 3 | 2 | 1.00 | 0.87 | 0.87 | powersgd (1.88) | powersgd (2.50) |"]
    assert "| randomk 1 % | 2.00 / 5.00 (1.79) | 0.33 / 2.00 (0.65) |" in text
    assert "| natural | - | - |" in text
    assert tables.grace(LSTM[1:]).startswith("Nothing to compare yet")


def test_every_method_is_asked_of_every_model_at_the_rates_of_the_released_data() -> None:
    asked = [one.asked for one in measure.points(quick=False)]
    assert {(one["model"], one["method"]) for one in asked} == {(m, a) for m in MODELS for a in (DENSE, *METHODS)}
    assert {(model, rate) for model in MODELS for rate in measure.rates_of(model)} == {
        column for column in COLUMNS if column[0] not in LEFT_OUT
    }
    asked = [{"model": "LSTM", "method": method} for method in (DENSE, *METHODS)]
    hashes = {one["method"]: code_hash(BENCHMARK, one) for one in asked}
    assert hashes["topk 1 %"] == hashes["topk 10 %"] and len(set(hashes.values())) == len(METHODS) + 1 - 2
