"""The testbed against itself: which runs there are, that each can be asked for, and what their table says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.benchmarks.invariance import measure, tables
from experiments.benchmarks.invariance.measure import ALONE, BUSY, CONFIGURATIONS, NETEM
from experiments.common.whole_run import Refused
from testbed.orchestrator.config.config import resolve

NAME, SERVED = "replay, ddp, gloo", "replay, parameter_server"


def test_there_are_twelve_configurations_at_four_combinations_and_at_most_72_runs() -> None:
    points = measure.points(quick=False)
    assert len(CONFIGURATIONS) == 12 and len(points) == len({point.key for point in points}) <= 72
    places = [point.asked["place"] for point in points]
    assert [places.count(place) for place in (ALONE, NETEM, BUSY)] == [48, 4, 8]
    for one in CONFIGURATIONS.values():
        assert [k for k, _ in one.combinations] == [1, 4, 20, 100]
        assert {scale for _, scale in one.combinations} == ({1, 4, 16} if one.is_replayed else {1})


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_run_can_be_asked_for(name: str) -> None:
    one = CONFIGURATIONS[name]
    for k, scale in one.combinations:
        faults = resolve(one.overrides(k, scale)).faults
        is_refused = name == SERVED and scale != 1
        assert [is_refused] * len(faults) == ["codecs and updates take CPU" in fault for fault in faults]
        assert bool(faults) == is_refused
    k, scale = one.combinations[-1]
    found = resolve(one.overrides(k, scale))
    assert (found.spec.dilation, found.spec.scale, found.spec.auto_dilation) == (k, scale, False)
    assert found.spec.topology.farthest_rtt_s <= 0.006


def made(k: int, scale: int, step_s: float, wan_bytes: float, place: str = ALONE) -> dict[str, Any]:
    asked = {"configuration": NAME, "place": place, "k": k, "scale": scale}
    result = {"step_s": step_s, "wan_bytes_step": wan_bytes, "payload_bytes_step": wan_bytes, "verdict": "valid"}
    return {"asked": asked, "is_disturbed": False, "others_cores": 0.0, "result": result}


def refused(k: int, scale: int) -> dict[str, Any]:
    return {**made(k, scale, 0, 0), "result": {"refused": "no such k"}}


def test_each_cell_is_compared_at_full_size_with_the_run_at_the_lowest_k() -> None:
    points = [made(4, 1, 0.404, 1.6e8), made(1, 16, 0.4, 1e7), made(20, 4, 0.4, 4.2e7), refused(100, 1)]
    found = {(cell.point["asked"]["k"]): cell for cell in tables.cells(points)}
    assert found[1].is_base and not found[4].is_base
    assert found[4].off("step_s") == pytest.approx(0.01) and found[4].off("wan_bytes_step") == pytest.approx(0)
    assert [found[k].agrees for k in (4, 20, 100)] == [True, False, False]
    told = tables.invariance(points)
    assert told.startswith("1 of 3 cells agree within 3% in time and bytes with the lowest k")
    assert "(1 refused, which counts as not agreeing)" in told
    assert f"| {NAME} | {ALONE} | 20 | 4 | 0.4000 | +0.0 | 168.00 MB | +5.0 | +5.0 | valid |" in told


def test_what_is_refused_at_a_scale_is_compared_with_the_lowest_k_that_is_not() -> None:
    ran = [
        {**one, "asked": {**one["asked"], "configuration": SERVED}}
        for one in (made(20, 1, 2.0, 3e8), made(100, 1, 2.1, 3e8))
    ]
    points = [
        {**refused(k, scale), "asked": {**refused(k, scale)["asked"], "configuration": SERVED}}
        for k, scale in ((1, 16), (4, 4))
    ]
    found = {cell.point["asked"]["k"]: cell for cell in tables.cells([*points, *ran])}
    assert found[20].is_base and not any(found[k].agrees for k in (1, 4, 100))
    assert found[100].off("step_s") == pytest.approx(0.05) and found[1].off("step_s") is None


def test_cells_in_other_places_are_compared_with_the_run_that_was_alone() -> None:
    busy = made(1, 16, 0.5, 1e7, BUSY)
    cell = tables.cells([busy, made(1, 16, 0.4, 1e7)])[1]
    assert (cell.point, cell.off("step_s"), cell.agrees) == (busy, pytest.approx(0.25), False)
    (lonely,) = tables.cells([busy])
    assert lonely.base is None and not lonely.agrees


def test_a_refused_run_is_a_result_and_a_failed_one_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def perform(overrides: tuple[str, ...], limit_s: float, *, runs: Path | None = None) -> None:
        raise Refused(f"{overrides[-1]}: status 2: no")

    monkeypatch.setattr(measure, "perform", perform)
    assert measure.found(NAME, 1, 16, 10.0, runs=tmp_path) == {"refused": "evaluate_every=1000: status 2: no"}
