"""The process that records packet headers: `python -m testbed.orchestrator.emulation.measuring.tap`.

Its configuration is one JSON line on stdin; it answers a line when it records, runs until stdin ends, then takes what
the kernel still holds and answers a last line with its counts.

Each interface has a memory-mapped ring (AF_PACKET, TPACKET_V3) that the kernel fills with outgoing packets as they
leave the queueing discipline, stamped by the kernel and cut to a snap length before they are copied. A ring's packet
header holds the four fields of a pcap record in pcap's order, so a record is two slices; nothing is decoded here.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import select
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

from testbed.orchestrator.emulation.kernel.namespaces import in_network_namespace
from testbed.orchestrator.emulation.kernel.netlink import mtu_bytes_of

SNAPLEN = 96
"""Ethernet (14), IP (20) and the longest TCP header (60), and 2 bytes."""
FILE_HEADER = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAPLEN, 1)
"""pcap 2.4 with nanoseconds, Ethernet."""
_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION, _TPACKET_V3 = 263, 5, 6, 10, 2
_SO_ATTACH_FILTER = 26
_BLOCK_BYTES = 1 << 18
_MAX_BLOCKS, _MIN_BLOCKS = 16, 4
_ALL_RINGS_BYTES = 128 << 20
_RETIRE_MS = 100
"""A block that is not full is handed over after this time."""
_STATUS_OFFSET, _KERNEL, _USER = 8, 0, 1
_BLOCK = struct.Struct("=8xIII")
"""Status, packets, offset of the first."""
_PACKET = struct.Struct("=I8xI8xH")
"""Offset of the next one, bytes captured, offset of the Ethernet header; bytes 4 to 20 are the pcap record's header."""
_RECORD_HEADER_BYTES = 16
_OUTGOING_FILTER = (
    (0x20, 0, 0, 0xFFFFF004),  # load the packet's type
    (0x15, 0, 1, socket.PACKET_OUTGOING),  # if it is outgoing
    (0x06, 0, 0, SNAPLEN),  # take this many bytes
    (0x06, 0, 0, 0),  # else nothing
)


class Tap:
    """One interface's outgoing packets into one file of at most `most_bytes`."""

    def __init__(self, config: dict[str, Any], most_bytes: int, blocks: int) -> None:
        self._interface, self._most_bytes, self._blocks = config["interface"], most_bytes, blocks
        self.file_name = config["file"]
        self._path = Path(config["path"])
        self._file = self._path.open("wb", buffering=0)
        self._bytes = self._file.write(FILE_HEADER)
        self._is_full = False
        self._next_block = 0
        self.packets = self.cut_packets = self.dropped_packets = 0
        self.failure: str | None = None
        self.socket = in_network_namespace(config["namespace"], self._open)
        self._ring = mmap.mmap(self.socket.fileno(), blocks * _BLOCK_BYTES)
        self.socket.bind((self._interface, _ETH_P_ALL))  # from here on packets come

    def _open(self) -> socket.socket:
        found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in _OUTGOING_FILTER))
        address = struct.pack("HP", len(_OUTGOING_FILTER), ctypes.addressof(program))
        found.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, address)
        found.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V3)
        frame_bytes = 2048  # of no use to this version, but asked for
        frames = self._blocks * _BLOCK_BYTES // frame_bytes
        request = struct.pack("=7I", _BLOCK_BYTES, self._blocks, frame_bytes, frames, _RETIRE_MS, 0, 0)
        found.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
        self.mtu_bytes = mtu_bytes_of(self._interface)
        return found

    def take(self) -> None:
        """Every block that the kernel has handed over, in order."""
        while True:
            start = self._next_block * _BLOCK_BYTES
            status, packets, first = _BLOCK.unpack_from(self._ring, start)
            if not status & _USER:
                return
            self._take_block(start + first, packets)
            struct.pack_into("=I", self._ring, start + _STATUS_OFFSET, _KERNEL)
            self._next_block = (self._next_block + 1) % self._blocks

    def _take_block(self, offset: int, packets: int) -> None:
        ring, room = self._ring, self._most_bytes - self._bytes
        parts: list[bytes] = []
        taken = 0
        while taken < packets and not self._is_full:
            following, length, mac = _PACKET.unpack_from(ring, offset)
            room -= _RECORD_HEADER_BYTES + length
            if room < 0:
                self._is_full = True  # for good: what is kept has no gaps
                break
            parts += (ring[offset + 4 : offset + 20], ring[offset + mac : offset + mac + length])
            offset += following
            taken += 1
        if not self._write(b"".join(parts)):
            taken = 0
        self.packets += taken
        self.cut_packets += packets - taken

    def _write(self, data: bytes) -> bool:
        try:
            if self._file.write(data) == len(data):
                self._bytes += len(data)
                return True
            raise OSError("disk full")
        except OSError as error:
            self._is_full, self.failure = True, f"{self._path}: {error}"
            self._file.truncate(self._bytes)  # no record is cut in its middle
            return False

    def close(self) -> dict[str, Any]:
        _, self.dropped_packets, _ = struct.unpack("=3I", self.socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 12))
        self._ring.close()
        self.socket.close()
        self._file.close()
        return {
            "file": self.file_name,
            "mtu_bytes": self.mtu_bytes,
            "size_bytes": self._bytes,
            "is_capped": self._is_full,
            "packets": self.packets,
            "cut_packets": self.cut_packets,
            "dropped_packets": self.dropped_packets,
            "failure": self.failure,
        }


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    config = json.loads(sys.stdin.readline())
    share = _ALL_RINGS_BYTES // (_BLOCK_BYTES * max(1, len(config["taps"])))
    blocks = max(_MIN_BLOCKS, min(_MAX_BLOCKS, share))
    taps = {tap.socket.fileno(): tap for tap in (Tap(one, config["most_bytes"], blocks) for one in config["taps"])}
    waiting = select.poll()
    waiting.register(sys.stdin, select.POLLIN)
    for descriptor in taps:
        waiting.register(descriptor, select.POLLIN)
    mtus = [{"file": tap.file_name, "mtu_bytes": tap.mtu_bytes} for tap in taps.values()]
    _say({"event": "ready", "taps": mtus})
    started_s = time.process_time()
    end_s: float | None = None
    while end_s is None or time.monotonic() < end_s:
        for descriptor, _ in waiting.poll(_RETIRE_MS):
            if descriptor in taps:
                taps[descriptor].take()
            elif end_s is None:
                waiting.unregister(sys.stdin)
                end_s = time.monotonic() + 2 * _RETIRE_MS / 1000  # by then the last block has been handed over
    for tap in taps.values():
        tap.take()
    cpu_s = time.process_time() - started_s
    _say({"event": "finished", "cpu_s": cpu_s, "taps": [tap.close() for tap in taps.values()]})


if __name__ == "__main__":
    main()
