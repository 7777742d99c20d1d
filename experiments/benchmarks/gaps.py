"""How evenly a link's shaper releases what waits before it: time between two releases against the time at the rate.

Mininet-HiFi's invariant (Handigol et al., CoNEXT 2012): while a queue is not empty, two releases are as far apart as
the later one takes at the link's rate. Time stamps are the kernel's, of an AF_PACKET ring behind the queue.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from experiments.benchmarks import inside
from experiments.benchmarks.harness import Point
from testbed.orchestrator.emulation import tap, tc, tcp
from testbed.orchestrator.emulation.network import Network
from testbed.orchestrator.emulation.port import Port

_RTT_S = 0.010
_WARM_S = 1.5
_WINDOW_S = 4.0
_TAP_BYTES = 64 << 20
_FRAME_HEADER_BYTES = 66
_SEGMENT_BYTES = 1448
_RECORD = struct.Struct("=IIII")


def points(*, quick: bool) -> list[Point]:
    """Single packets where the sender makes no larger units, else what the link carries; each with cores that halt when
    idle (as they are) and with cores kept awake."""
    if quick:
        return [Point({"rate_bit_s": 100e6, "single_packets": True, "awake": False, "busy": False}, 8)]
    return [
        Point({"rate_bit_s": rate, "single_packets": single, "awake": awake, "busy": busy}, 9)
        for rate in (100e6, 250e6, 500e6, 1000e6)
        for single in (True, False)
        for awake, busy in ((False, False), (True, False), (False, True))
        if not single or rate <= 250e6
    ]


def measure(
    rate_bit_s: float, single_packets: bool, awake: bool, busy: bool, burst_bytes: int = 0, rtt_s: float = _RTT_S,
    congestion: str = "reno", source: str = "tcp",
) -> dict[str, Any]:
    """`burst_bytes`: of the bucket, if not what a run has. Cores `awake` poll while idle."""
    topology = inside.topology(rate_bit_s, rtt_s)
    with (
        inside.awake_cores(awake),
        Network(topology, tcp.profile(congestion, topology), inside.shaper(), lambda _: None) as network,
        inside.busy_cores((os.cpu_count() or 1) if busy else 0),
    ):
        port = network.port(topology.wan_links[0].name, topology.wan_links[0].a)
        _choose_unit(network, port, single_packets, burst_bytes)
        with inside.QueueWatch(port.read) as watch, inside.Idle() as idle:
            if source == "tcp":
                flow = inside.flow_between(network, seconds=_WARM_S + _WINDOW_S + 0.2)
                packets = _tapped(port, _WARM_S, _WINDOW_S)
                ends = flow.wait()
                from_s = ends["started_s"] + _WARM_S
            else:
                import time
                with inside.Probes(inside.link_of(network)) as prober:
                    import threading
                    th = threading.Thread(target=prober.burst, args=(_WINDOW_S + .5,)); th.start()
                    from_s = time.monotonic() + .2
                    packets = _tapped(port, .2, _WINDOW_S)
                    th.join()
        full, share = watch.full_rate_bit_s(rate_bit_s, from_s, from_s + _WINDOW_S)
    return {**_gaps(packets, rate_bit_s), "burst_bytes": port.settings.burst_bytes, "idle_ratio": idle.ratio,
            "rate_bit_s": watch.rate_bit_s(from_s, from_s + _WINDOW_S), "full_rate_bit_s": full, "full_share": share}


def _choose_unit(network: Network, port: Port, single_packets: bool, burst_bytes: int) -> None:
    if single_packets:
        for node in network.workers.values():
            node.namespace.command(["ip", "link", "set", "dev", "eth0", "gso_max_segs", "1"])
        burst_bytes = burst_bytes or max(tc.LEAST_BURST_PACKET_BYTES, round(port.settings.rate_bit_s / 8 * tc.BURST_S))
    if burst_bytes:
        limit = port.settings.limit_bytes
        port.change(port.profile, tc.RateSettings(port.settings.rate_bit_s, burst_bytes, limit))


def _tapped(port: Port, warm_s: float, window_s: float) -> list[tuple[int, int]]:
    """(time in ns, bytes) of what left the queue in the window."""
    import time
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tap.pcap"
        one = {"interface": port.interface, "file": path.name, "path": str(path), "namespace": port.node.namespace.path}
        time.sleep(warm_s)
        process = subprocess.Popen(
            [sys.executable, "-m", "testbed.orchestrator.emulation.tap"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"taps": [one], "most_bytes": _TAP_BYTES}) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        time.sleep(window_s - 1)
        process.communicate()
        data = path.read_bytes()
    found, offset = [], len(tap.FILE_HEADER)
    while offset < len(data):
        seconds, nanoseconds, length, size_bytes = _RECORD.unpack_from(data, offset)
        offset += _RECORD.size + length
        found.append((seconds * 1_000_000_000 + nanoseconds, size_bytes))
    return found


def _gaps(packets: list[tuple[int, int]], rate_bit_s: float) -> dict[str, Any]:
    errors, sizes = [], []
    for (before_ns, _), (at_ns, size_bytes) in zip(packets, packets[1:], strict=False):
        segments = max(1, -(-(size_bytes - _FRAME_HEADER_BYTES) // _SEGMENT_BYTES))
        wire_bytes = size_bytes + (segments - 1) * _FRAME_HEADER_BYTES
        ideal_s = wire_bytes * 8 / rate_bit_s
        errors.append(abs((at_ns - before_ns) * 1e-9 / ideal_s - 1))
        sizes.append(size_bytes)
    return {
        "gaps": len(errors),
        "unit_bytes": inside.quantile([float(size) for size in sizes], 0.5),
        **{f"error_p{round(share * 100)}": inside.quantile(errors, share) for share in (0.5, 0.9, 0.99)},
        "over_10_percent": sum(error > 0.1 for error in errors) / len(errors) if errors else None,
    }
