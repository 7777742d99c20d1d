"""The study of compressors, simulated: its grid, its table of points made up, and the sweep beside it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from experiments.benchmarks.study_compressors import measure, tables
from experiments.benchmarks.study_compressors.measure import CODECS, NETWORKS, RATES_MBIT_S, RTTS_MS, cell
from experiments.common.sources import COMPRESSORS
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
    monkeypatch.setattr(tables, "accurate", lambda: {"none", "int8"})
    points = [member("none", 4.0), member("int8", 2.0), member("topk", 3.0, shortest_at=cell(10, 40))]
    points.append({"asked": {"compressor": "policy"}, "result": {"refused": "why"}, "is_disturbed": False})
    told = tables.study_compressors(points)
    assert "| topk 13.33; int8 2.00 | int8 2.00; int8 2.00 |" in told
    assert "3 members simulated. Keep accuracy: `int8`, `none`." in told
    assert "so that codecs may be faster: `topk`." in told
    assert told.endswith("Not simulated: `policy` (why).")


def test_all_members_are_asked_about_and_every_network_has_like_links() -> None:
    assert [point.asked["compressor"] for point in measure.points(quick=False)] == [
        *measure.BASELINES,
        *COMPRESSORS,
    ]
    for network in NETWORKS:
        spec = resolve(measure.overrides("none", network, 30, 160), emulated=False).spec
        assert uniform_rtt_s(spec.topology) == pytest.approx(0.16)
        assert spec.topology.wan_links[0].forward.rate_bit_s == 30e6


def test_the_sweep_of_compressors_emulates_a_cell_of_the_grid() -> None:
    sweep = yaml.safe_load((CLONE / "experiments" / "sweeps" / "study-compressors.yaml").read_text())
    axes = dict(axis.split("=", 1) for axis in sweep["axes"])
    assert set(axes["topo"].split(",")) == set(NETWORKS)
    chosen = axes["compressor"].split(",")
    assert len(chosen) == 12 and set(chosen) <= set(COMPRESSORS)
    shared = [f"{key}={value}" for key, value in axes.items() if key not in ("topo", "compressor", "seed")]
    found = resolve(["topo=ring", "compressor=none", "seed=0", "dilation=1", *shared])
    own = resolve([*measure.overrides("none", "ring", 100, 40), "evaluate_every=1000", "seed=0", "dilation=1"])
    assert not found.faults
    assert found.spec.hash == own.spec.hash
