"""The study of training between continents: what is fitted, what links stand for, and its tables of points made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.benchmarks.real_wan import measure, tables
from experiments.benchmarks.real_wan.measure import Reading
from experiments.benchmarks.real_wan.published import (
    MODELS,
    PLACES,
    ROUND_SAMPLES,
    US,
    Machine,
    Trained,
    fitted,
    machines,
)
from experiments.common.benchmark import Point
from experiments.common.sources import of_measuring
from testbed.analysis.simulator import calibration
from testbed.core.models.catalogue import find_model
from testbed.orchestrator.config.config import resolve


def trained(local: dict[int, float], granularity: dict[str, float] | None = None) -> Trained:
    return Trained(
        name="made up",
        parameters=1e6,
        local_samples_s=local,
        ratios={},
        granularity=granularity or {},
        stand_in="resnet18",
    )


def test_a_machine_is_found_again_from_the_rounds_that_it_makes() -> None:
    made, averaging_s = Machine(100.0, 7.0), {2: 1.0, 4: 2.0, 8: 3.0}
    local = {count: ROUND_SAMPLES / (made.alone_s(count) + averaging_s[count]) for count in averaging_s}
    found = fitted(trained(local), averaging_s)
    assert (found.samples_s, found.beside_s) == pytest.approx((100.0, 7.0))


def test_computing_over_communication_in_one_zone_is_fitted_to_as_well() -> None:
    made, averaging_s = Machine(100.0, 7.0), {2: 1.0, 8: 3.0}
    local = {count: ROUND_SAMPLES / (made.alone_s(count) + averaging_s[count]) for count in averaging_s}
    right = made.training_s(8) / (7.0 + 3.0)
    assert fitted(trained(local, {"A-8": right}), averaging_s).beside_s == pytest.approx(7.0)
    assert fitted(trained(local, {"A-8": right / 2}), averaging_s).beside_s > 7.5


def test_nothing_of_runs_between_regions_goes_into_the_fit() -> None:
    for model in MODELS.values():
        granularity = {run: told if run.startswith("A-") else 9.0 for run, told in model.granularity.items()}
        ratios = dict.fromkeys(model.ratios, 0.1)
        changed = Trained(**{**vars(model), "ratios": ratios, "granularity": granularity})
        zone = dict.fromkeys(model.local_samples_s, 1.0)
        assert fitted(changed, zone) == fitted(model, zone)


def test_streams_of_all_pairs_of_machines_fill_a_link_up_to_what_it_was_seen_to_carry() -> None:
    def rate(case: str, reading: Reading = measure.EACH_ITS_OWN) -> float:
        (link,) = measure.network(case, reading)["links"]
        return float(link["rate"].removesuffix(" Mbit/s"))

    assert rate("B-8") / rate("B-2") == pytest.approx(16, rel=1e-4)
    assert rate("B-8", Reading(one_stream=True)) == rate("B-2")


def test_what_long_transfers_reach_is_what_was_published() -> None:
    constants = calibration.known().constants
    assert pytest.approx(constants.goodput, abs=0.005) == measure.GOODPUT
    (link,) = measure.network("B-2")["links"]
    reached_s = measure.averaging_s("NLP", "B-2")
    assert reached_s == pytest.approx(8 * MODELS["NLP"].payload_bytes / 210e6, rel=0.02)
    assert link["rtt"] == "103.1000 ms"


def test_emulations_are_as_much_faster_as_they_are_smaller() -> None:
    for model, case in (("NLP", "B-8"), ("CV", "C-3")):
        times = measure.faster(model)
        assert times * find_model(MODELS[model].stand_in).parameters == pytest.approx(MODELS[model].parameters)
        whole, small = measure.network(case), measure.network(case, times_faster=times)
        for a, b in zip(whole["links"], small["links"], strict=True):
            assert a["rate"] == b["rate"]
            ratio = float(a["rtt"].removesuffix(" ms")) / float(b["rtt"].removesuffix(" ms"))
            assert ratio == pytest.approx(times, rel=1e-3)


@pytest.mark.parametrize("point", measure.points(quick=False), ids=lambda point: "-".join(point.asked.values()))
def test_each_emulation_can_be_made(point: Point, tmp_path: Path) -> None:
    model, case = point.asked["model"], point.asked["case"]
    topology = tmp_path / "made.yaml"
    asked = {"_target_": "topologies.described.build", **measure.network(case, times_faster=measure.faster(model))}
    topology.write_text(yaml.safe_dump(asked))
    found = resolve(measure.overrides(model, case, topology))
    assert not found.faults
    assert found.spec.workers == machines(case) == len(found.spec.topology.nodes)
    assert [node.region for node in found.spec.topology.nodes].count(US) == PLACES[case][US]
    assert measure.local(case) in measure.EMULATED[model]


def test_figures_depend_on_what_is_published_and_on_what_is_sent() -> None:
    names = {path.name for path in measure.depends_on("NLP", "B-2")}
    assert {"described.py", "replay.py", "fp16.py", "ddp.py"} <= names
    own = {path.name for path in of_measuring(measure.__name__)}
    assert own == {"measure.py", "published.py"}


def made(case: str, step_s: float, verdict: str = "valid") -> dict[str, Any]:
    result = {"verdict": verdict, "reasons": [], "dilation": 5.0, "step_s": step_s}
    return {"asked": {"model": "NLP", "case": case}, "result": result, "is_disturbed": False, "others_cores": 0.0}


def test_an_emulated_ratio_is_that_of_two_runs_and_stands_beside_the_published_one() -> None:
    told = tables.real_wan_table([made("A-2", 3.0), made("B-2", 4.0, "suspect")])
    row = next(line for line in told.splitlines() if line.endswith("| valid, suspect |"))
    assert row.startswith("| NLP | B-2 | 0.839 |") and "| 0.750 | -10.6 |" in row


def test_without_the_run_in_one_zone_there_is_no_emulated_ratio() -> None:
    assert tables.real_wan_table([made("B-2", 4.0)]).endswith("None yet.")
