"""What a run's capture holds, direction by direction, and whether it agrees with the kernel's own counters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.analysis.capture import pcap
from testbed.analysis.capture.flows import bursts, flows, peaks
from testbed.analysis.capture.pcap import UDP, Frames
from testbed.analysis.record.record import Record, is_finite
from testbed.core.errors import BROKEN, InputError
from testbed.core.files import read_object
from testbed.core.units import format_size

AGREEMENT = 0.005
"""Of bytes. With offloads off every frame is counted as it is; what is left are packets at the edges of the window."""
COUNTERS_LATE_S = 0.1
"""Counters are read at most this long before the time of their event."""
MIN_GAP_S = 1e-3
_USUAL_MTU_BYTES = 1500


def analyse(record: Record) -> dict[str, Any]:
    """Everything as JSON would hold it; times are emulated seconds since step 1 began.

    Raises:
        InputError: the run captured nothing, or its files cannot be read.
    """
    directory = record.run.path / "capture"
    try:
        if directory.is_symlink():
            raise ValueError("capture is a link")
        index = read_object(directory / "capture.json")
    except (OSError, ValueError) as error:
        raise InputError(f"{record.run_id}: no capture ({error}); make a run with capture=wan") from error
    start_unix_s = record.start_unix_s
    if start_unix_s is None:
        raise InputError(f"{record.run_id}: nothing says when it began")
    directions: list[dict[str, Any]] = []
    faults: list[str] = []
    for entry in _entries(record, index):
        try:
            frames = pcap.read(directory / entry["file"], entry.get("mtu_bytes") or _USUAL_MTU_BYTES)
            directions.append(_direction(record, index, entry, frames, start_unix_s))
        except InputError as error:
            faults += error.faults
        except BROKEN as error:
            faults.append(
                f"{record.run_id}: capture.json or events.jsonl is none of ours: {type(error).__name__}: {error}"
            )
    if faults:
        raise InputError(*faults)
    return {
        "run_id": record.run_id,
        **{key: index.get(key) for key in ("mode", "is_complete", "snaplen_bytes", "most_bytes", "cpu_s")},
        "addresses": index.get("addresses") or {},
        "directions": directions,
        "notes": list(_notes(index, directions)),
        "warnings": list(_warnings(index, directions)),
    }


def _entries(record: Record, index: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the index says of each file.

    Raises:
        InputError: An entry is none, or names a file elsewhere.
    """
    entries = index.get("files")
    for entry in entries if isinstance(entries, list) else [None]:
        known = entry if isinstance(entry, dict) else {}
        name, words = known.get("file"), [known.get(key) for key in ("link", "from", "to")]
        is_sound = all(isinstance(word, str) for word in words) and isinstance(known.get("mtu_bytes"), int | None)
        if not isinstance(name, str) or Path(name).name != name or not is_sound:
            raise InputError(f"{record.run_id}: capture.json names no files of its folder")
    return list(entries or ())


def _direction(
    record: Record, index: dict[str, Any], entry: dict[str, Any], frames: Frames, start_unix_s: float
) -> dict[str, Any]:
    dilation = record.spec.dilation if record.spec else 1.0
    t_s = np.asarray((frames.time_ns - round(start_unix_s * 1e9)) * 1e-9 / dilation, dtype=np.float64)
    is_probe = (
        (frames.protocol == UDP)
        & (frames.source_port == frames.target_port)
        & np.isin(frames.source_port, index.get("probe_ports") or [])
    )
    own, order = ~is_probe, np.argsort(t_s[~is_probe], kind="stable")
    own_t_s, own_bytes = t_s[own][order], frames.wire_bytes[own][order]
    found = flows(frames, own, t_s)
    is_short = bool(entry.get("is_capped") or frames.is_torn or not index.get("is_complete"))
    return {
        **{key: entry[key] for key in ("link", "from", "to", "file")},
        "frames": int(own.sum()),
        "super_packets": int((frames.segments[own] > 1).sum()),
        "packets": int(frames.segments[own].sum()),
        "wire_bytes": int(own_bytes.sum()),
        "payload_bytes": int(frames.payload_bytes[own].sum()),
        "first_t_s": float(own_t_s[0]) if len(own_t_s) else None,
        "last_t_s": float(own_t_s[-1]) if len(own_t_s) else None,
        "probes": {
            "packets": int(frames.segments[is_probe].sum()),
            "wire_bytes": int(frames.wire_bytes[is_probe].sum()),
        },
        "retransmitted": {key: sum(flow["retransmitted"][key] for flow in found) for key in ("frames", "bytes")},
        "bursts": bursts(own_t_s, own_bytes, _gap_s(record, entry, own_bytes)),
        "peak_bit_s": peaks(own_t_s, own_bytes),
        "lacks": _lacks(entry, frames),
        "counters": _compared(record, entry, t_s, frames.wire_bytes, is_short=is_short),
        "flows": found,
    }


def _gap_s(record: Record, entry: dict[str, Any], size_bytes: pcap.Column) -> float:
    """What ends a burst: twice the time that the largest frame takes on the link, so that full use is one burst."""
    for link in record.network.get("links") or ():
        if (link.get("name"), link.get("from"), link.get("to")) == (entry["link"], entry["from"], entry["to"]):
            rate_bit_s = (link.get("asked") or {}).get("rate_bit_s")
            if is_finite(rate_bit_s) and rate_bit_s > 0 and len(size_bytes):
                return float(max(MIN_GAP_S, 2 * int(size_bytes.max()) * 8 / rate_bit_s))
    return MIN_GAP_S


def _lacks(entry: dict[str, Any], frames: Frames) -> dict[str, Any]:
    """What left the link and is not in the file. Counts are null where a killed run wrote none."""
    cut, dropped = entry.get("cut_packets"), entry.get("dropped_packets")
    return {
        "is_capped": bool(entry.get("is_capped")),
        "cut_frames": cut,
        "cut_ratio": cut / (cut + len(frames)) if cut else cut,
        "dropped_frames": dropped,
        "is_torn": frames.is_torn,
        "failure": entry.get("failure"),
    }


def _compared(
    record: Record, entry: dict[str, Any], t_s: NDArray[np.float64], size_bytes: pcap.Column, *, is_short: bool
) -> dict[str, Any] | None:
    """Bytes from step 1 to the last counter that the file reaches; None without such a counter.

    Both sides hold everything: `wire_bytes` leaves out probes and background traffic, `excluded_bytes` adds them.
    """
    key = entry["link"], entry["from"], entry["to"]
    last_s = float(t_s.max()) if len(t_s) else 0.0
    events = [
        event
        for event in record.of_kind("link")
        if (event["name"], event["from"], event["to"]) == key and event["t_s"] > 0
        if not is_short or event["t_s"] <= last_s
    ]
    if not events:
        return None
    until_s = events[-1]["t_s"]
    counted = events[-1]["wire_bytes"] + events[-1].get("excluded_bytes", 0)
    captured = int(size_bytes[(t_s >= 0) & (t_s <= until_s)].sum())
    # those that left between the counter's reading and its event: nobody can say on which side they are
    late_s = COUNTERS_LATE_S / (record.spec.dilation if record.spec else 1.0)
    unsure = int(size_bytes[(t_s > until_s - late_s) & (t_s <= until_s)].sum())
    beyond = max(0, abs(captured - unsure / 2 - counted) - unsure / 2)
    return {
        "until_t_s": until_s,
        "captured_bytes": captured,
        "counted_bytes": counted,
        "unsure_bytes": unsure,
        "difference_ratio": captured / counted - 1 if counted else None,
        "agrees": beyond <= max(AGREEMENT * counted, 2 * _USUAL_MTU_BYTES),
    }


def _notes(index: dict[str, Any], directions: list[dict[str, Any]]) -> Iterator[str]:
    if any(direction["super_packets"] for direction in directions):
        yield (
            "Offloads were on: super-packets are counted as the packets they become, their headers once a segment of"
            " the interface's MTU; times and bursts are those of super-packets."
        )
    elif index.get("mode") == "wan-packets":
        yield "Offloads were off: every frame is a packet."


def _warnings(index: dict[str, Any], directions: list[dict[str, Any]]) -> Iterator[str]:
    if not index.get("is_complete"):
        yield "the capture was not ended in order: its last packets may be missing, and its losses were not counted"
    for direction in directions:
        where = f"{direction['link']} from {direction['from']} to {direction['to']}"
        lacks, counters = direction["lacks"], direction["counters"]
        if lacks["failure"]:
            yield f"{where}: writing failed: {lacks['failure']}"
        if lacks["is_capped"]:
            size, last_s = format_size(index.get("most_bytes") or 0), direction["last_t_s"] or 0.0
            yield (
                f"{where}: the file was closed at {last_s:.3f} s (its limit is {size});"
                f" {lacks['cut_frames']} frames after that are missing, {lacks['cut_ratio'] or 0:.1%} of all"
            )
        if lacks["dropped_frames"]:
            yield f"{where}: the capture itself lost {lacks['dropped_frames']} frames: the machine was too busy"
        if lacks["is_torn"]:
            yield f"{where}: {direction['file']} ends within a record"
        if index.get("mode") == "wan-packets" and direction["super_packets"]:
            yield f"{where}: {direction['super_packets']} super-packets although offloads were to be off"
        if counters is None:
            yield f"{where}: no counter of the record to compare with"
        elif not counters["agrees"]:
            yield (
                f"{where}: the capture holds {counters['captured_bytes']} bytes, the queue counted"
                f" {counters['counted_bytes']}: more than {AGREEMENT:.1%} apart"
            )
