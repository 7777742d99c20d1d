"""Target and measured values of `network.json` are of one moment, whatever events change later."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.core.record.run_directory import RunDir
from testbed.core.spec.topology import symmetric
from testbed.orchestrator.emulation.kernel import tc
from testbed.orchestrator.emulation.links.port import Port
from testbed.orchestrator.emulation.measuring.result import ProbeResult
from testbed.orchestrator.run.links.network_record import NetworkRecord


def made(path: Path, dilation: float = 1.0) -> tuple[NetworkRecord, list[Port]]:
    """Return a record after the measurement before the training, and its ports."""
    nothing: Any = None
    rtt_s = 0.02 * dilation
    link = symmetric("us-eu", "us", "eu", wan=True, rate_bit_s=1e8 / dilation, rtt_s=rtt_s, source="test")
    ports = [
        Port(link, a, b, nothing, "x", 1, profile, tc.rate_settings(profile, link.rtt_s, dilation), dilation=dilation)
        for a, b, profile in link.directions()
    ]
    tcp = SimpleNamespace(name="cubic", congestion_control="cubic")
    network: Any = SimpleNamespace(ports=ports, shaper=SimpleNamespace(name="netem"), tcp=tcp)
    prober: Any = SimpleNamespace(priority=None)
    judge: Any = SimpleNamespace(training_rate_bit_s=lambda *key: None, loss_ratio=lambda *key: None)
    record = NetworkRecord(RunDir(path), network, prober, judge, lambda event: None, dilation)
    measured = ProbeResult("idle")
    probes = {"rtt_s": [rtt_s] * 3, "forward_s": [rtt_s / 2] * 3, "backward_s": [rtt_s / 2] * 3, "span_s": 0.1}
    measured.add_probes(link, probes)
    record.add(measured)
    return record, ports


@pytest.mark.parametrize("dilation", [1.0, 4.0])
@pytest.mark.parametrize(
    ("ways", "change", "at_end"),
    [
        ([0], {"rate_bit_s": 5e7}, {"rate_bit_s": 5e7, "rtt_s": 0.02}),
        ([0, 1], {"delay_s": 0.04}, {"rate_bit_s": 1e8, "rtt_s": 0.08}),
        ([1], {"delay_s": 0.03}, {"rate_bit_s": 1e8, "rtt_s": 0.04}),
        ([0], {"loss_ratio": 0.25}, {"loss_ratio": 0.25}),
        ([0], {"jitter_s": 0.005, "delay_s": 0.01}, {"jitter_s": 0.005, "rtt_s": 0.02}),
    ],
)
def test_the_target_stays_that_of_the_measurement(
    ways: list[int], change: dict[str, float], at_end: dict[str, float], dilation: float, tmp_path: Path
) -> None:
    record, ports = made(tmp_path, dilation)
    before = json.loads((tmp_path / "network.json").read_text())["links"]
    wall = {key: value * dilation if key in ("delay_s", "jitter_s") else value for key, value in change.items()}
    wall |= {key: value / dilation for key, value in change.items() if key == "rate_bit_s"}
    for way in ways:
        ports[way].profile = dataclasses.replace(ports[way].profile, **wall)
    record.finish()
    after = json.loads((tmp_path / "network.json").read_text())["links"]
    for way in (0, 1):
        assert [after[way][key] for key in ("asked", "measured")] == [before[way][key] for key in ("asked", "measured")]
    for key, value in at_end.items():
        assert after[ways[0]]["at_end"][key] == pytest.approx(value)


def test_without_a_change_nothing_is_at_the_end(tmp_path: Path) -> None:
    record, _ = made(tmp_path)
    record.finish()
    assert not any("at_end" in link for link in json.loads((tmp_path / "network.json").read_text())["links"])
