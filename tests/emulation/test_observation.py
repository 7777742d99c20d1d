"""Observing a run leaves its emulated links alone, and a Prometheus that scrapes it ends with the run's last values."""

from __future__ import annotations

import ipaddress
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.analysis.capture import pcap
from testbed.core.record.metric_samples import Totals
from testbed.core.record.metrics import METRICS
from testbed.orchestrator.machine import cleanup
from tests.emulation.support import START_TIMEOUT_S, Longhaul, wait_until
from tests.unit.analysis.archived import ask, require_prometheus, served

pytestmark = pytest.mark.timeout(600)
MTU_BYTES = 1500
ADDRESS = re.compile(r"http://(127\.0\.0\.1:(\d+))/metrics")


@dataclass(frozen=True)
class Observed:
    """A captured run that a Prometheus scraped, ended."""

    longhaul: Longhaul
    port: int
    """Port of its /metrics."""
    interfaces: set[str]
    """Network interfaces that its observer has."""
    scrapes: float
    last: list[dict[str, Any]]
    """Prometheus' last value of each of its series."""


def interfaces_of_the_observer(run_id: str) -> set[str]:
    (observer,) = (
        pid
        for pid in cleanup.processes_of(run_id)
        if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:3] == [b"-m", b"testbed.orchestrator.run"]
    )
    command = ["nsenter", f"--net=/proc/{observer}/ns/net", "ip", "-json", "link"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout
    return {link["ifname"] for link in json.loads(said)}


@pytest.fixture(scope="module")
def observed(machine_lock: None, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    require_prometheus()
    folder = tmp_path_factory.mktemp("observed")
    longhaul = Longhaul(folder / "runs", "topo=wan1g", "workload=sensors", "steps=12", "capture=wan")
    wait_until(lambda: ADDRESS.search(longhaul.said) is not None, START_TIMEOUT_S, "the address of /metrics")
    ((target, port),) = set(ADDRESS.findall(longhaul.said))
    config = (
        "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\n"
        "scrape_configs:\n"
        f"  - {{job_name: longhaul, honor_labels: true, static_configs: [{{targets: ['{target}']}}]}}\n"
    )
    with served(folder / "data", folder, config) as server:
        longhaul.wait_for_step(2)
        interfaces = interfaces_of_the_observer(longhaul.run.run_id)
        assert longhaul.wait() in (0, 5), longhaul.said
        matcher = '{run="' + longhaul.run.run_id + '"}'
        (scrapes,) = ask(server, 'sum(count_over_time(longhaul_train_steps_total{rank="0"}[15m]))')
        last = ask(server, f"last_over_time({matcher}[15m])")
    return Observed(longhaul, int(port), interfaces, float(scrapes["value"][1]), last)


def test_the_last_scrape_holds_what_the_record_ends_with(observed: Observed) -> None:
    own = ("run", "topo", "compressor", "instance", "job")
    found = {
        frozenset((key, text) for key, text in series["metric"].items() if key not in own): float(series["value"][1])
        for series in observed.last
    }
    totals = Totals()
    for event in observed.longhaul.run.read_events():
        totals.add(event)
    wanted = {
        frozenset({("__name__", METRICS[name].series), *labels}): value
        for (name, labels), value in totals.snapshot().items()
    }
    assert len(wanted) > 100
    assert {key: found.get(key) for key in wanted} == wanted


def test_no_packet_on_a_link_is_of_the_observation(observed: Observed) -> None:
    """It has no way to send one there either."""
    assert observed.interfaces == {"lo"}
    assert observed.scrapes > 5, "it was hardly scraped: the test would prove nothing"
    folder = observed.longhaul.run.path / "capture"
    index = json.loads((folder / "capture.json").read_text())
    nodes = [int(ipaddress.ip_address(address)) for address in index["addresses"]]
    assert len(nodes) == 4 and len(index["files"]) == 2
    for entry in index["files"]:
        assert (entry["cut_packets"], entry["dropped_packets"]) == (0, 0)
        frames = pcap.read(folder / entry["file"], MTU_BYTES)
        is_training = (
            (frames.protocol == pcap.TCP) & np.isin(frames.source, nodes) & np.isin(frames.target, nodes)
        ) & ~(np.isin(frames.source_port, [observed.port]) | np.isin(frames.target_port, [observed.port]))
        is_probe = (frames.protocol == pcap.UDP) & np.isin(frames.source_port, index["probe_ports"])
        assert is_training.sum() > 100 and is_probe.sum() > 2
        others = ~(is_training | is_probe)
        assert not others.any(), f"{others.sum()} packets of {entry['from']} are neither training's nor probes"
