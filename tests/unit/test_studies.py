"""The studies that are simulated: their grids, their tables of points made up, and the sweep beside them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from experiments.benchmarks import document
from experiments.benchmarks import registry as tables
from experiments.benchmarks.study_compressors import study_compressors
from experiments.benchmarks.study_compressors.study_compressors import CODECS, NETWORKS, RATES_MBIT_S, RTTS_MS, cell
from experiments.benchmarks.study_scale import study_scale
from experiments.common import harness
from experiments.common import page as document_page
from experiments.common import sources as members
from testbed.core.spec.topology import uniform_rtt_s
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.machine.clone import CLONE


def member(name: str, step_s: float, *, shortest_at: str = "") -> dict[str, Any]:
    cells = {cell(rate, rtt): step_s for rate in RATES_MBIT_S for rtt in RTTS_MS}
    if shortest_at:
        cells[shortest_at] = step_s / 10
    steps = {codec: dict.fromkeys(NETWORKS, cells) for codec in CODECS}
    return {"asked": {"compressor": name}, "result": {"step_s": steps, "codec_s": 0.0}, "is_disturbed": name == "topk"}


def test_each_cell_names_the_fastest_and_the_fastest_that_keeps_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.benchmarks.study_compressors import tables as study_compressors_tables

    monkeypatch.setattr(study_compressors_tables, "accurate", lambda: {"none", "int8"})
    points = [member("none", 4.0), member("int8", 2.0), member("topk", 3.0, shortest_at=cell(10, 40))]
    points.append({"asked": {"compressor": "policy"}, "result": {"refused": "why"}, "is_disturbed": False})
    told = tables.of("study_compressors", points)
    assert "| topk 13.33; int8 2.00 | int8 2.00; int8 2.00 |" in told
    assert "3 members simulated. Keep accuracy: `int8`, `none`." in told
    assert "so that codecs may be faster: `topk`." in told
    assert told.endswith("Not simulated: `policy` (why).")


def test_all_members_are_asked_about_and_every_network_has_like_links() -> None:
    assert [point.asked["compressor"] for point in harness.points_of("study_compressors")] == [
        *study_compressors.BASELINES,
        *members.NAMES,
    ]
    for network in NETWORKS:
        spec = resolve(study_compressors.overrides("none", network, 30, 160), emulated=False).spec
        assert uniform_rtt_s(spec.topology) == pytest.approx(0.16)
        assert spec.topology.wan_links[0].forward.rate_bit_s == 30e6


def scaled(kind: str, workers: int, step_s: float, outside: list[str]) -> dict[str, Any]:
    one = {"step_s": step_s, "wan_bytes": 1.0, "bound_by": "computing", "outside": outside}
    by_rate = {f"{rate:g}": one for rate in study_scale.RATES_MBIT_S}
    return {"asked": {"kind": kind, "workers": workers}, "result": {"by_rate": by_rate}}


def test_the_fastest_kind_of_each_size_is_named_and_what_was_not_validated_is_counted() -> None:
    points = [scaled("none", 4, 0.5, []), scaled("topk", 4, 0.4, []), scaled("none", 1000, 9.0, ["workers 1000"])]
    points.append({"asked": {"kind": "topk", "workers": 1000}, "result": {"refused": "why"}})
    told = tables.of("study_scale", points)
    assert "| **fastest** | topk | - | - | - | - | - | none |" in told
    assert "| none | 0.5 | - | - | - | - | - | 9 |" in told
    assert "Not simulated: topk on 1000: why." in told
    assert told.endswith("1 of 3 points lie outside what the simulator was validated on, by: workers 1000.")


@pytest.mark.parametrize("kind", study_scale.KINDS)
def test_each_kind_of_the_study_of_scale_can_be_asked_for(kind: str) -> None:
    found = resolve(study_scale.overrides(kind, 64), emulated=False)
    assert not found.faults
    assert found.spec.workers == 64


@pytest.mark.parametrize("name", ["study_compressors", "study_scale", "real_wan"])
def test_its_page_has_room_for_it(name: str) -> None:
    page = document.ELSEWHERE[name]
    text = page.read_text()
    document_page.between(text, name, "x")
    document_page.between(text, "machine", "x")
    path, _ = document.DRAWN[name]
    assert f"figures/{path.name}" in text


def test_the_sweep_of_compressors_emulates_a_cell_of_the_grid() -> None:
    sweep = yaml.safe_load((CLONE / "experiments" / "sweeps" / "study-compressors.yaml").read_text())
    axes = dict(axis.split("=", 1) for axis in sweep["axes"])
    assert set(axes["topo"].split(",")) == set(NETWORKS)
    chosen = axes["compressor"].split(",")
    assert len(chosen) == 12 and set(chosen) <= set(members.NAMES)
    shared = [f"{key}={value}" for key, value in axes.items() if key not in ("topo", "compressor", "seed")]
    found = resolve(["topo=ring", "compressor=none", "seed=0", "dilation=1", *shared])
    own = resolve(
        [*study_compressors.overrides("none", "ring", 100, 40), "evaluate_every=1000", "seed=0", "dilation=1"]
    )
    assert not found.faults
    assert found.spec.hash == own.spec.hash
