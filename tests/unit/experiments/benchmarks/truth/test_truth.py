"""The page of truth: how near its closed forms come, what is emulated, and its tables with points made up."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from experiments.benchmarks.truth import foretold, measure, published, tables, training
from experiments.benchmarks.truth.published import LINKS
from testbed.core.costs.sockets import MIB, Cluster
from testbed.core.errors import InputError
from testbed.core.models.model_file import model_faults, model_to_json
from testbed.core.record.run_directory import write_json
from testbed.orchestrator.config.config import resolve

WORST = {"nccl": 0.0022, "gloo": 0.0276}


@pytest.mark.parametrize("library", WORST)
def test_shaped_all_reduces_are_predicted_as_the_page_says(library: str) -> None:
    shaped = [row for row in published.all_reduces(library) if row.is_shaped]
    assert len(shaped) == 12 and max(abs(row.error) for row in shaped) <= WORST[library]


def test_every_published_row_has_a_prediction() -> None:
    rows = [row for library in WORST for of in (published.sends, published.chains) for row in of(library)]
    assert (len(rows), len(published.grouped()), len(published.streams())) == (104, 60, 15)
    assert all(row.predicted_s > 0 for row in (*rows, *published.grouped()))


def test_the_model_behind_tbf_has_its_parameters_and_tensors() -> None:
    assert (sum(training.TENSORS_BYTES), len(training.TENSORS_BYTES)) == (training.MODEL_BYTES, 45)
    assert training.CACHES_BYTES == 50_331_648


def test_exchanges_behind_tbf_are_predicted_as_the_page_says() -> None:
    assert [training.diloco(link).error for link in LINKS] == pytest.approx([-0.005, 0.002, -0.096, -0.213], abs=0.001)
    assert [training.ddp(link).error for link in LINKS] == pytest.approx([-0.051, -0.028, -0.056, -0.081], abs=0.001)
    assert all(training.ddp(link, with_buffers=False).error < -0.24 for link in LINKS)


@pytest.mark.parametrize("library", WORST)
def test_points_are_the_shaped_all_reduces_and_can_be_run(library: str, tmp_path: Path) -> None:
    points = measure.points(quick=False)
    assert len({point.key for point in points}) == len(points) == 24
    model = tmp_path / "tensor-128.json"
    write_json(model, model_to_json(measure.table(128)))
    assert not list(model_faults(model_to_json(measure.table(128)))) and 4 * measure.table(128).parameters == 128 * MIB
    found = resolve(measure.overrides(library, 8, "1ms 5G", model))
    assert not found.faults
    assert found.spec.topology.farthest_rtt_s == pytest.approx(0.002, rel=0.1)
    assert Cluster.of(found.spec.topology).rate_bit_s == pytest.approx(published.aws(8, "1ms 5G").rate_bit_s)
    assert found.spec.topology.mtu_bytes == published.MTU_BYTES


def made(nodes: int, link: str, size_mib: int, exposed_s: float) -> dict[str, Any]:
    asked = {"library": "gloo", "nodes": nodes, "link": link, "size_mib": size_mib}
    return {
        "asked": asked,
        "is_disturbed": False,
        "result": {"exposed_s": exposed_s, "verdict": "valid", "dilation": 2},
    }


def test_a_row_says_what_was_emulated_and_that_all_others_are_not_yet() -> None:
    lines = tables.truth_table([made(4, "10ms 1G", 256, 6.0)], []).splitlines()
    (row,) = (line for line in lines if line.startswith("| 4 | 10ms 1G | 256 | 5909 |"))
    assert row.endswith("| 5952 | +0.7 | 6000 | +1.5 | valid, k 2 |")
    (other,) = (line for line in lines if line.startswith("| 4 | 10ms 1G | 128 | 2993 |"))
    assert other.endswith(f"| {tables.NOT_EMULATED} | - | - |")
    assert "| Gloo, all-reduce, shaped | 12 | 12 | 1.6% | +2.7 % | 1 of 12 |" in lines
    assert "None is emulated yet." in lines


def test_what_is_kept_back_is_foretold_with_its_commit() -> None:
    found = foretold.predictions("0" * 40)
    assert len(found["collectives"]) == 3 * 2 * 2 * 4 * 2 and len(found["diloco"]) == 4 * 3
    (one,) = (
        row
        for row in found["collectives"]
        if (row["operation"], row["library"], row["nodes"]) == ("all_reduce", "nccl", 16)
        and (row["link"], row["size_mib"]) == ("10ms 1G", 256)
    )
    assert one["predicted_s"] == pytest.approx(4.106, abs=0.001) and set(one["known_errors"]) == {"4", "8"}
    rare = found["diloco"][-1]
    assert (rare["rate"], rare["sync_every"]) == ("50m", 128)
    assert rare["mean_step_s"] == pytest.approx(rare["inner_step_s"] + rare["exchange_s"] / 128)


def test_predictions_that_were_published_stay_as_they_were() -> None:
    found = hashlib.sha256(foretold.FILE.read_bytes()).hexdigest()
    assert found == "3a6b1889788eb34f39dbf8945d82311d8d579a2dba6aacd774205436f5cf7c10"


def test_predictions_are_written_once_and_from_a_commit() -> None:
    for arguments, said in (([], "nothing: give the 40 digits"), (["0" * 40], "exists; predictions are written once")):
        with pytest.raises(InputError, match=said):
            foretold.main(arguments)
