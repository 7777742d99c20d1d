"""A capture file as columns: scapy reads its records, numpy takes the headers of all of them apart at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.core.errors import InputError
from testbed.core.files import open_regular_bytes

TCP, UDP = 6, 17
SYN, FIN = 0x02, 0x01
_ETHERNET_BYTES = 14
_HEADERS_BYTES = 96
_RECORD_HEADER_BYTES, _FILE_HEADER_BYTES = 16, 24
_IPV4 = 0x0800
MAX_FRAMES = 20_000_000
"""Bound of one file: some 6 GB of memory. Records of 16 bytes would fill any."""

Column = NDArray[np.int64]


@dataclass(frozen=True)
class Frames:
    """Frames in the file's order, one column a field. Fields that a frame does not have are 0."""

    time_ns: Column
    """Unix time."""
    frame_bytes: Column
    """From the Ethernet header on; a super-packet's headers once."""
    wire_bytes: Column
    """A super-packet's headers once a segment, as the kernel's queues count."""
    segments: Column
    protocol: Column
    """IPv4's; 0 for what is not IPv4."""
    source: Column
    target: Column
    source_port: Column
    target_port: Column
    payload_bytes: Column
    """TCP's or UDP's."""
    sequence: Column
    flags: Column
    is_torn: bool
    """The file ends within a record."""

    def __len__(self) -> int:
        return len(self.time_ns)


def read(path: Path, mtu_bytes: int) -> Frames:
    """Read a pcap file.

    A segment's size is not in a capture. It is taken as what fills `mtu_bytes` beside the frame's own headers, which is
    how TCP cuts its data.

    Raises:
        InputError: the file is no capture of Ethernet.
    """
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapReader

    heads: list[bytes] = []
    fields: list[tuple[int, int, int]] = []
    used_bytes, is_torn = _FILE_HEADER_BYTES, False
    try:
        # given a path, scapy would leave what is no capture open; its types know of paths only
        with open_regular_bytes(path) as file, RawPcapReader(file) as reader:  # type: ignore[arg-type]
            if reader.linktype != 1:
                raise InputError(f"{path}: link type {reader.linktype}, expected 1, Ethernet")
            per_second = 1_000_000_000 if reader.nano else 1_000_000
            for data, found in reader:
                used_bytes += _RECORD_HEADER_BYTES + found.caplen
                if len(data) < found.caplen:
                    is_torn = True
                    break
                if len(heads) >= MAX_FRAMES:
                    raise ValueError(f"more than {MAX_FRAMES} frames")
                heads.append(data[:_HEADERS_BYTES].ljust(_HEADERS_BYTES, b"\0"))
                fields.append((found.sec, found.usec, found.wirelen))
    except (OSError, ValueError, Scapy_Exception) as error:
        raise InputError(f"{path}: cannot be read as a capture: {error}") from error
    columns = np.array(fields, dtype=np.int64).reshape(-1, 3)
    time_ns = columns[:, 0] * 1_000_000_000 + columns[:, 1] * (1_000_000_000 // per_second)
    headers = np.frombuffer(b"".join(heads), dtype=np.uint8).reshape(-1, _HEADERS_BYTES)
    is_torn = is_torn or used_bytes != path.stat().st_size
    return Frames(time_ns, columns[:, 2], **_decoded(headers, columns[:, 2], mtu_bytes), is_torn=is_torn)


def _decoded(headers: NDArray[np.uint8], frame_bytes: Column, mtu_bytes: int) -> dict[str, Any]:
    rows = np.arange(len(headers))

    def number(offset: Column | int, size: int) -> Column:
        """Big-endian; `offset` may differ from frame to frame."""
        value = np.zeros(len(headers), dtype=np.int64)
        for place in range(size):
            value = value << 8 | headers[rows, np.minimum(offset + place, _HEADERS_BYTES - 1)]
        return value

    is_ip = (number(12, 2) == _IPV4) & (number(_ETHERNET_BYTES, 1) >> 4 == 4)
    ip_bytes = np.where(is_ip, (number(_ETHERNET_BYTES, 1) & 15) * 4, 0)
    inner = _ETHERNET_BYTES + ip_bytes
    protocol = np.where(is_ip, number(_ETHERNET_BYTES + 9, 1), 0)
    is_later_fragment = is_ip & (number(_ETHERNET_BYTES + 6, 2) & 0x1FFF != 0)
    is_tcp = (protocol == TCP) & ~is_later_fragment
    is_udp = (protocol == UDP) & ~is_later_fragment
    has_ports = is_tcp | is_udp
    inner_bytes = np.where(is_tcp, (number(inner + 12, 1) >> 4) * 4, np.where(is_udp, 8, 0))
    # not IP's own length: it holds 16 bits, and a super-packet may have more; a veth pads no frame
    payload = np.where(has_ports, np.maximum(frame_bytes - inner - inner_bytes, 0), 0)
    most = np.maximum(mtu_bytes - ip_bytes - inner_bytes, 1)
    segments = np.where(has_ports, np.maximum(-(-payload // most), 1), 1)
    return {
        "wire_bytes": frame_bytes + (segments - 1) * (inner + inner_bytes),
        "segments": segments,
        "protocol": protocol,
        "source": np.where(is_ip, number(_ETHERNET_BYTES + 12, 4), 0),
        "target": np.where(is_ip, number(_ETHERNET_BYTES + 16, 4), 0),
        "source_port": np.where(has_ports, number(inner, 2), 0),
        "target_port": np.where(has_ports, number(inner + 2, 2), 0),
        "payload_bytes": payload,
        "sequence": np.where(is_tcp, number(inner + 4, 4), 0),
        "flags": np.where(is_tcp, number(inner + 13, 1), 0),
    }
