"""Trainings behind tbf: what is sent, whether each can be run, and the table with points made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.benchmarks.truth import training
from experiments.benchmarks.truth.published import LINKS, MTU_BYTES
from experiments.benchmarks.truth_trainings import measure, tables
from testbed.core.models.model_file import model_faults, model_to_json
from testbed.core.record.run_directory import write_json
from testbed.orchestrator.config.config import resolve


def test_each_method_is_measured_at_each_published_rate() -> None:
    asked = [point.asked for point in measure.points(quick=False)]
    assert asked == [{"method": method, "link": link} for method in ("diloco", "ddp") for link in LINKS]


@pytest.mark.parametrize(("method", "all_reduces", "buffers_bytes"), [("diloco", 45, 0), ("ddp", 2, 50_331_648)])
def test_what_is_sent_is_what_the_cluster_sent(
    method: str, all_reduces: int, buffers_bytes: int, tmp_path: Path
) -> None:
    model = measure.model(method)
    assert (4 * model.parameters, len(model.layers)) == (training.MODEL_BYTES, all_reduces)
    assert model.buffers_bytes == buffers_bytes and not list(model_faults(model_to_json(model)))
    file = tmp_path / "model.json"
    write_json(file, model_to_json(model))
    for link, rate_bit_s in LINKS.items():
        found = resolve(measure.overrides(method, link, file))
        assert not found.faults
        topology = found.spec.topology
        assert topology.mtu_bytes == MTU_BYTES and topology.farthest_rtt_s == pytest.approx(training.ROUND_TRIP_S)
        for card in topology.access_links:
            assert (card.forward.rate_bit_s, card.forward.burst_bytes) == (rate_bit_s, 32_000)
            assert card.forward.limit_bytes == pytest.approx(32_000 + rate_bit_s / 8 * 0.05)


def made(method: str, link: str, **figures: Any) -> dict[str, Any]:
    result = {"verdict": "valid", "dilation": 4, "mean_step_s": 9.0, **figures}
    return {"asked": {"method": method, "link": link}, "is_disturbed": False, "result": result}


def test_an_exchange_is_compared_without_computing_and_a_step_with_it() -> None:
    exchanged = training.diloco("1g").measured_s * 1.02 + measure.EXCHANGE_ALONE_S
    stepped = training.ddp("1g").measured_s * 0.98
    points = [made("diloco", "1g", mean_step_s=exchanged), made("ddp", "1g", mean_step_s=stepped)]
    lines = tables.trainings([*points, made("ddp", "5g", verdict="suspect")]).splitlines()
    assert len(lines) == 2 + 4
    (cells,) = (line.strip("| ").split(" | ") for line in lines if line.startswith("| 1g |"))
    assert (cells[3], cells[6]) == ("+2.0", "-2.0")
    assert lines[2].startswith("| 5g |") and lines[2].endswith(" (suspect) |") and " | - | " in lines[2]
