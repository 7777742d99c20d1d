"""Captures made by scapy, with figures that can be worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import PcapWriter

from testbed.analysis.__main__ import main
from testbed.analysis.capture.packets import analyse
from testbed.analysis.record.record import load
from tests.unit.analysis.synthetic import START_UNIX_S, STEPS, WAN_BYTES_S, make_run

HEADER_BYTES = 14 + 20 + 32
MSS = 1500 - 20 - 32
PORTS = (40_000, 5000)
PROBE_PORT = 61_000
LINK, SOURCE, TARGET = "oregon-virginia", "oregon", "virginia"
Packet = tuple[float, bytes, int]
"""(time since step 1, frame as captured, its bytes on the wire)."""


def tcp(t_s: float, sequence: int, payload_bytes: int, flags: str = "A", ports: tuple[int, int] = PORTS) -> Packet:
    stamps = [("Timestamp", (1, 2)), ("NOP", None), ("NOP", None)]
    inner = TCP(sport=ports[0], dport=ports[1], seq=sequence % 2**32, flags=flags, options=stamps)
    frame = bytes(Ether() / IP(src="10.64.0.1", dst="10.65.0.1") / inner)
    assert len(frame) == HEADER_BYTES
    return t_s, frame, HEADER_BYTES + payload_bytes


def probe(t_s: float) -> Packet:
    frame = bytes(Ether() / IP(src="10.63.0.0", dst="10.63.0.2") / UDP(sport=PROBE_PORT, dport=PROBE_PORT) / bytes(16))
    return t_s, frame, len(frame)


def captured(root: Path, packets: Iterable[Packet], cut_bytes: int = 0, **fields: Any) -> Path:
    """A run with a capture of one direction, its file `cut_bytes` shorter than it should be."""
    run = make_run(root)
    directory = run.path / "capture"
    directory.mkdir()
    path = directory / "one.pcap"
    with PcapWriter(str(path), linktype=1, nano=True) as writer:
        writer.write_header(None)
        for t_s, frame, wire_bytes in packets:
            at_ns = round((START_UNIX_S + t_s) * 1e9)
            writer.write_packet(
                frame, sec=at_ns // 10**9, usec=at_ns % 10**9, caplen=len(frame), wirelen=max(wire_bytes, len(frame))
            )
    path.write_bytes(path.read_bytes()[: path.stat().st_size - cut_bytes])
    entry = {"link": LINK, "from": SOURCE, "to": TARGET, "file": path.name, "mtu_bytes": 1500}
    counts = {"is_capped": False, "cut_packets": 0, "dropped_packets": 0, "failure": None}
    index = {"mode": "wan", "is_complete": True, "snaplen_bytes": 96, "most_bytes": 10**6, "probe_ports": [PROBE_PORT]}
    files = [{**entry, **counts, **fields}]
    (directory / "capture.json").write_text(json.dumps({**index, "addresses": {"10.64.0.1": "w0"}, "files": files}))
    return run.path


def direction(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = analyse(load(path))["directions"][0]
    return found


def as_counted(seconds: int = STEPS) -> list[Packet]:
    """What the synthetic run's counters saw: a packet in the middle of each second."""
    size = WAN_BYTES_S[SOURCE] // 2 - HEADER_BYTES
    return [
        tcp(second + part, (2 * second + index) * size, size)
        for second in range(seconds)
        for index, part in enumerate((0.4, 0.5))
    ]


def test_flows_are_told_apart_by_ports_and_counted(tmp_path: Path) -> None:
    other = (40_001, 5000)
    packets = [tcp(1, 0, 1000), tcp(2, 0, 10, ports=other), tcp(3, 1000, 500), tcp(4, 1500, 0), probe(5)]
    found = direction(captured(tmp_path, packets))
    first, second = found["flows"]
    assert (first["source"], first["source_port"], first["target"], first["target_port"]) == (
        *("10.64.0.1", 40_000),
        *("10.65.0.1", 5000),
    )
    assert (first["packets"], first["payload_bytes"], first["wire_bytes"]) == (3, 1500, 1500 + 3 * HEADER_BYTES)
    assert (first["first_t_s"], first["last_t_s"]) == pytest.approx((1, 4), abs=1e-6)
    assert (second["source_port"], second["wire_bytes"]) == (40_001, 10 + HEADER_BYTES)
    assert found["probes"] == {"packets": 1, "wire_bytes": 58}
    assert found["wire_bytes"] == first["wire_bytes"] + second["wire_bytes"]


START = 2**32 - 1500
"""The sequence number wraps within the second packet."""


@pytest.mark.parametrize(
    ("ranges", "frames", "size_bytes"),
    [
        ([(0, 1000), (1000, 1000), (2000, 1000)], 0, 0),
        ([(0, 1000), (1000, 1000), (0, 1000), (2000, 1000)], 1, 1000),
        ([(0, 1000), (1000, 1000), (1500, 1000)], 1, 500),  # half of it is new
        ([(0, 1000), (2000, 1000), (1000, 1000)], 0, 0),  # fills a hole: lost before it came here
        ([(0, 1000), (2000, 1000), (1000, 1000), (1000, 1000)], 1, 1000),
        ([(0, 1000), (3000, 1000), (1500, 1000), (0, 4000)], 1, 3000),  # two holes left of 500 each
        ([(0, 1000), (-500, 500), (1000, 0), (999, 0)], 0, 0),  # from before the capture; keep-alive
    ],
)
def test_what_was_seen_before_is_sent_again(
    tmp_path: Path, ranges: list[tuple[int, int]], frames: int, size_bytes: int
) -> None:
    packets = [tcp(1 + n / 100, START + start, length) for n, (start, length) in enumerate(ranges)]
    assert direction(captured(tmp_path, packets))["retransmitted"] == {"frames": frames, "bytes": size_bytes}


def test_a_port_used_anew_sends_nothing_again(tmp_path: Path) -> None:
    first = [tcp(1, 5000, 0, "S"), tcp(1.1, 5001, 1000)]
    again = [tcp(2, 5000, 0, "S")]
    anew = [tcp(3, 4000, 0, "S"), tcp(3.1, 4001, 2000)]
    assert direction(captured(tmp_path, [*first, *anew]))["retransmitted"] == {"frames": 0, "bytes": 0}
    (tmp_path / "again").mkdir()
    found = direction(captured(tmp_path / "again", [*first, *again, *anew]))
    assert found["retransmitted"] == {"frames": 1, "bytes": 1}


def test_a_super_packet_counts_headers_once_a_segment(tmp_path: Path) -> None:
    path = captured(tmp_path, [tcp(1, 0, 10 * MSS), tcp(2, 10 * MSS, MSS + 1), tcp(3, 11 * MSS + 1, MSS)])
    found = direction(path)
    assert (found["frames"], found["super_packets"], found["packets"]) == (3, 2, 13)
    assert found["wire_bytes"] == 12 * MSS + 1 + 13 * HEADER_BYTES
    assert any("once a segment" in note for note in analyse(load(path))["notes"])


def test_a_torn_file_gives_its_whole_records(tmp_path: Path) -> None:
    path = captured(tmp_path, as_counted(), cut_bytes=10)
    found = analyse(load(path))
    assert found["directions"][0]["frames"] == 2 * STEPS - 1
    assert any("ends within a record" in warning for warning in found["warnings"])
    assert found["directions"][0]["counters"]["until_t_s"] == STEPS - 1  # the last one that the file reaches
    assert found["directions"][0]["counters"]["agrees"]


def test_a_capture_is_compared_with_the_counters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tcp(-1, 7, 10_000, ports=(1, 2))
    path = captured(tmp_path, [before, *as_counted()])
    counters = direction(path)["counters"]
    sent = STEPS * WAN_BYTES_S[SOURCE]
    assert (counters["captured_bytes"], counters["counted_bytes"], counters["agrees"]) == (sent, sent, True)
    assert main(["capture", str(path)]) == 0
    said = capsys.readouterr().out
    assert "w0:40000" in said and "DISAGREE" not in said and "warning" not in said


def test_a_capture_that_lacks_packets_disagrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = captured(tmp_path, as_counted()[4:], dropped_packets=4)
    assert main(["capture", "--json", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["directions"][0]["counters"]["difference_ratio"] == pytest.approx(-4 / (2 * STEPS))
    assert not found["directions"][0]["counters"]["agrees"]
    assert any("more than 0.5% apart" in warning for warning in found["warnings"])
    assert any("lost 4 frames" in warning for warning in found["warnings"])
    assert main(["capture", str(path)]) == 0
    assert "DISAGREE" in capsys.readouterr().out


def test_a_full_file_is_compared_up_to_where_it_reaches(tmp_path: Path) -> None:
    found = analyse(load(captured(tmp_path, as_counted(20), is_capped=True, cut_packets=80)))
    counters, lacks = found["directions"][0]["counters"], found["directions"][0]["lacks"]
    assert (counters["until_t_s"], counters["agrees"]) == (19, True)
    assert lacks["cut_ratio"] == pytest.approx(2 / 3)
    assert any("80 frames after that are missing, 66.7%" in warning for warning in found["warnings"])


def test_bursts_and_peaks(tmp_path: Path) -> None:
    size = 1000 - HEADER_BYTES
    three = [tcp(1 + n * 1e-4, n * size, size) for n in range(3)]
    one = [tcp(1.005, 3 * size, size)]
    found = direction(captured(tmp_path, [*three, *one]))
    assert (found["bursts"]["count"], found["bursts"]["gap_s"]) == (2, 1e-3)
    assert (found["bursts"]["bytes"]["max"], found["bursts"]["frames"]["max"]) == (3000, 3)
    assert found["bursts"]["duration_s"]["max"] == pytest.approx(2e-4, rel=1e-2)
    assert found["peak_bit_s"] == pytest.approx({"1ms": 3000 * 8 / 1e-3, "10ms": 4000 * 8 / 1e-2})


def test_no_capture_or_no_pcap_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", str(make_run(tmp_path / "none").path)]) == 2
    assert "capture=wan" in capsys.readouterr().err
    path = captured(tmp_path, [])
    (path / "capture" / "one.pcap").write_bytes(b"something else, of more than 24 bytes")
    assert main(["capture", str(path)]) == 2
    assert "one.pcap" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value"),
    [("mtu_bytes", "evil"), ("mtu_bytes", [1]), ("file", "../one.pcap"), ("file", "/etc/hostname"), ("link", {})],
)
def test_an_index_that_is_none_of_ours_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, value: object
) -> None:
    path = captured(tmp_path, [tcp(1.0, 1, 100)], **{key: value})
    assert main(["capture", str(path)]) == 2
    said = capsys.readouterr().err
    assert "capture.json" in said and said.count("\n") == 1


def test_a_folder_that_is_a_link_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = captured(tmp_path, [])
    (path / "capture").rename(tmp_path / "elsewhere")
    (path / "capture").symlink_to(tmp_path / "elsewhere")
    assert main(["capture", str(path)]) == 2 and "capture is a link" in capsys.readouterr().err


def test_frames_without_end_are_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.analysis.capture.pcap.MAX_FRAMES", 3)
    path = captured(tmp_path, [tcp(1.0, number, 0) for number in range(4)])
    assert main(["capture", str(path)]) == 2 and "more than 3 frames" in capsys.readouterr().err


def test_an_empty_capture_is_no_error(tmp_path: Path) -> None:
    found = direction(captured(tmp_path, []))
    assert (found["frames"], found["flows"], found["bursts"]["count"]) == (0, [], 0)
    assert not found["counters"]["agrees"]
