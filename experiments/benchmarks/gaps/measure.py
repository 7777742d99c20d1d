"""How evenly a link's shaper releases what waits before it: time between two releases against the time at the rate.

Mininet-HiFi's invariant (Handigol et al., CoNEXT 2012): while a queue is not empty, two releases are as far apart as
the later one takes at the link's rate. Time stamps are the kernel's, of an AF_PACKET ring behind the queue.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.common import sources, testnet
from experiments.common.benchmark import Point
from testbed.orchestrator.emulation.kernel import tc, tcp
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.links.port import Port
from testbed.orchestrator.emulation.measuring import tap

_STREAM = sources.file("experiments.common.stream")
_RTT_S = 0.010
_LIMIT_BYTES = 4_000_000
"""So much that the queue never runs empty."""
_WARM_S, _WINDOW_S = 1.5, 3.0
_TAP_BYTES = 64 << 20
_PACKET_BYTES = 1514
_TCP_HEADER_BYTES, _SEGMENT_BYTES = 66, 1448
_RECORD = struct.Struct("=IIII")


def points(*, quick: bool) -> list[Point]:
    """Cores that halt when idle are as they are; cores kept awake show what waking up costs.

    `tcp` is one reno flow, `udp` a stream that nothing answers. Of the `unit` that a run has at that rate; at 100 and
    250 Mbit/s, where a run lets super-packets pass, of packets too.
    """
    if quick:
        return [Point({"rate_bit_s": 100e6, "traffic": "tcp", "unit": "packet", "awake": False, "busy": False}, 8)]
    return [
        Point({"rate_bit_s": rate, "traffic": traffic, "unit": unit, "awake": awake, "busy": busy}, 9)
        for rate, unit in (
            *((25e6, "packet"), (100e6, "packet"), (250e6, "packet")),
            *((rate, "super-packet") for rate in (100e6, 250e6, 500e6, 1000e6)),
        )
        for traffic in ("tcp", "udp")
        for awake, busy in ((False, False), (True, False), (False, True))
        if traffic == "tcp" or unit == "packet"
    ]


def depends_on(**_: Any) -> Iterator[Path]:
    return sources.of_network("testbed.orchestrator.emulation.measuring.tap")


def measure(rate_bit_s: float, traffic: str, unit: str, awake: bool, busy: bool) -> dict[str, Any]:
    topology = testnet.topology(rate_bit_s, _RTT_S)
    with (
        testnet.awake_cores(awake),
        Network(topology, tcp.profile("reno", topology), testnet.shaper(), lambda _: None) as network,
        testnet.busy_cores((os.cpu_count() or 1) if busy else 0),
    ):
        port = network.port(topology.wan_links[0].name, topology.wan_links[0].a)
        burst_bytes = port.settings.burst_bytes
        if unit == "packet":
            burst_bytes = max(tc.MIN_SMALL_BURST_BYTES, round(rate_bit_s / 8 * tc.SMALL_BURST_S))
        port.change(port.profile, tc.RateSettings(rate_bit_s, burst_bytes, _LIMIT_BYTES, unit))
        with testnet.QueueWatch(port.read) as watch, testnet.Idle() as idle:
            flow = testnet.flow_between(network, seconds=_WARM_S + _WINDOW_S + 0.5) if traffic == "tcp" else None
            stream = None if flow else _stream(network, rate_bit_s)
            from_s = time.monotonic() + _WARM_S
            packets = _tapped(port, _WARM_S, _WINDOW_S)
            if flow:
                flow.wait()
            elif stream:
                stream.wait()
    full, share = watch.full_rate_bit_s(rate_bit_s, from_s, from_s + _WINDOW_S)
    return {
        **_gaps(packets, rate_bit_s),
        "burst_bytes": burst_bytes,
        "idle_ratio": idle.ratio,
        "full_rate_bit_s": full,
        "full_share": share,
    }


def _stream(network: Network, rate_bit_s: float) -> subprocess.Popen[Any]:
    """From router to router, where it ends unanswered: nothing comes back over the link."""
    (link,) = network.topology.wan_links
    count = round(rate_bit_s / 8 / _PACKET_BYTES * (_WARM_S + _WINDOW_S + 0.5))
    b = network.routers[link.b].namespace
    b.command(["iptables", "-t", "raw", "-I", "PREROUTING", "-p", "udp", "-j", "DROP"])
    command = [sys.executable, str(_STREAM), "send", str(network.plan.wan[link.name].b_side.near), str(count)]
    return network.routers[link.a].namespace.popen([*command, str(_PACKET_BYTES - 42), str(_LIMIT_BYTES // 4)])


def _tapped(port: Port, warm_s: float, window_s: float) -> list[tuple[int, int]]:
    """(time in ns, bytes) of what left the queue in the window."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tap.pcap"
        one = {"interface": port.interface, "file": path.name, "path": str(path), "namespace": port.node.namespace.path}
        started_s = time.monotonic()
        time.sleep(warm_s - 0.5)
        process = subprocess.Popen(
            [sys.executable, "-m", "testbed.orchestrator.emulation.measuring.tap"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"taps": [one], "most_bytes": _TAP_BYTES}) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        time.sleep(max(0.0, started_s + warm_s + window_s - time.monotonic()))
        process.communicate()
        data = path.read_bytes()
    found, offset = [], len(tap.FILE_HEADER)
    while offset < len(data):
        seconds, nanoseconds, length, size_bytes = _RECORD.unpack_from(data, offset)
        offset += _RECORD.size + length
        found.append((seconds * 1_000_000_000 + nanoseconds, size_bytes))
    return found


def _gaps(packets: list[tuple[int, int]], rate_bit_s: float) -> dict[str, Any]:
    """A super-packet counts with the headers of all its segments, as the queue counts it."""
    errors = []
    for (before_ns, _), (at_ns, size_bytes) in itertools.pairwise(packets):
        segments = max(1, -(-(size_bytes - _TCP_HEADER_BYTES) // _SEGMENT_BYTES)) if size_bytes > _PACKET_BYTES else 1
        ideal_s = (size_bytes + (segments - 1) * _TCP_HEADER_BYTES) * 8 / rate_bit_s
        errors.append(abs((at_ns - before_ns) * 1e-9 / ideal_s - 1))
    return {
        "gaps": len(errors),
        "unit_bytes": testnet.median([float(size) for _, size in packets]),
        "error_p50": testnet.median(errors),
        **{f"error_p{round(share * 100)}": testnet.quantile(errors, share) for share in (0.9, 0.99)},
        "over_10_percent": sum(error > 0.1 for error in errors) / len(errors) if errors else None,
    }
