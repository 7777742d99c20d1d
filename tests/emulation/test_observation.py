"""Observing a run leaves its emulated links alone: no packet of it is on them, and it has no way to send one there."""

from __future__ import annotations

import ipaddress
import json
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from testbed.analysis.capture import pcap
from testbed.orchestrator.machine import cleanup
from tests.emulation.support import Longhaul

MTU_BYTES = 1500
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/metrics")
SCRAPE_EVERY_S = 0.2


@contextmanager
def scraped(address: str) -> Iterator[list[int]]:
    """Often, as a Prometheus does; gives the size of each page."""
    stopped, sizes = threading.Event(), list[int]()
    request = urllib.request.Request(address, headers={"X-Prometheus-Scrape-Timeout-Seconds": "1"})

    def scrape() -> None:
        while not stopped.wait(SCRAPE_EVERY_S):
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    sizes.append(len(answer.read()))
            except OSError:  # it has ended
                return

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield sizes
    finally:
        stopped.set()
        thread.join()


def interfaces_of_the_observer(run_id: str) -> set[str]:
    (observer,) = (
        pid
        for pid in cleanup.processes_of(run_id)
        if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:3] == [b"-m", b"testbed.orchestrator.run"]
    )
    command = ["nsenter", f"--net=/proc/{observer}/ns/net", "ip", "-json", "link"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout
    return {link["ifname"] for link in json.loads(said)}


@pytest.mark.timeout(600)
def test_no_packet_on_a_link_is_of_the_observation(machine_lock: None, tmp_path: Path) -> None:
    longhaul = Longhaul(tmp_path / "runs", "topo=wan1g", "workload=sensors", "steps=24", "capture=wan")
    longhaul.wait_for_step(2)
    address = ADDRESS.search(longhaul.said)
    assert address, longhaul.said
    assert interfaces_of_the_observer(longhaul.run.run_id) == {"lo"}
    with scraped(address[0]) as sizes:
        assert longhaul.wait() in (0, 5), longhaul.said
    assert len(sizes) > 5 and min(sizes) > 10_000, "it was hardly scraped: the test would prove nothing"

    folder = longhaul.run.path / "capture"
    index = json.loads((folder / "capture.json").read_text())
    nodes = [int(ipaddress.ip_address(address)) for address in index["addresses"]]
    assert len(nodes) == 4 and len(index["files"]) == 2
    for entry in index["files"]:
        assert (entry["cut_packets"], entry["dropped_packets"]) == (0, 0)
        frames = pcap.read(folder / entry["file"], MTU_BYTES)
        is_training = (
            (frames.protocol == pcap.TCP) & np.isin(frames.source, nodes) & np.isin(frames.target, nodes)
        ) & ~(np.isin(frames.source_port, [int(address[1])]) | np.isin(frames.target_port, [int(address[1])]))
        is_probe = (frames.protocol == pcap.UDP) & np.isin(frames.source_port, index["probe_ports"])
        assert is_training.sum() > 100 and is_probe.sum() > 2
        others = ~(is_training | is_probe)
        assert not others.any(), f"{others.sum()} packets of {entry['from']} are neither training's nor probes"
