"""A capture holds what the queues counted: as packets with offloads off, as super-packets with them on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.capture import pcap
from testbed.analysis.capture.packets import AGREEMENT
from tests.emulation.support import run_inside

MTU_BYTES = 1500
ETHERNET_BYTES = 14
PLENTY_BYTES = 64 << 20


def capture(path: Path, topo: str, mode: str, seconds: float, most_bytes: int) -> dict[str, dict[str, Any]]:
    """By the end at which a direction begins: what the capture says of its file, and what the queue counted."""
    found = run_inside("inside_capture.py", topo, mode, str(path), str(seconds), str(most_bytes))
    assert found["failure"] is None
    index = json.loads((path / "capture.json").read_text())
    assert index["is_complete"] and index["mode"] == mode
    return {entry["from"]: {**entry, "counted": found["counted"][entry["from"]]} for entry in index["files"]}


@pytest.mark.parametrize(("topo", "mode"), [("wan100m", "wan-packets"), ("wan100m", "wan"), ("wan1g", "wan")])
def test_a_capture_agrees_with_the_queues(machine_lock: None, tmp_path: Path, topo: str, mode: str) -> None:
    entries = capture(tmp_path / "capture", topo, mode, 2.0, PLENTY_BYTES)
    assert sorted(entry["file"] for entry in entries.values()) == ["000.pcap", "001.pcap"], "no name becomes a path"
    for entry in entries.values():
        frames = pcap.read(tmp_path / "capture" / entry["file"], entry["mtu_bytes"])
        assert not frames.is_torn
        assert (entry["packets"], entry["cut_packets"], entry["dropped_packets"]) == (len(frames), 0, 0)
        for found, counted in ((frames.wire_bytes, "bytes"), (frames.segments, "packets")):
            assert abs(int(found.sum()) / entry["counted"][counted] - 1) < AGREEMENT
        assert all(frames.time_ns[1:] >= frames.time_ns[:-1])
    sent = pcap.read(tmp_path / "capture" / entries["oregon"]["file"], MTU_BYTES)
    assert sent.wire_bytes.sum() > 5e6
    assert (sent.frame_bytes.max() > MTU_BYTES + ETHERNET_BYTES) == (mode == "wan")


def test_a_full_file_ends_with_a_whole_record_and_the_rest_is_counted(machine_lock: None, tmp_path: Path) -> None:
    entry = capture(tmp_path / "capture", "wan100m", "wan-packets", 0.5, 50_000)["oregon"]
    path = tmp_path / "capture" / entry["file"]
    assert 49_000 < path.stat().st_size <= 50_000
    frames = pcap.read(path, MTU_BYTES)
    assert not frames.is_torn
    assert entry["is_capped"] and entry["cut_packets"] > 0
    assert entry["packets"] == len(frames)
    assert entry["packets"] + entry["cut_packets"] + entry["dropped_packets"] == entry["counted"]["packets"]
