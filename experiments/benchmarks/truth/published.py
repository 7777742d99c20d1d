"""Clusters that were really measured, from `data/`, each time beside its closed form.

Each file names its source. No number here was fitted to a row of its own, but for those that
docs/decisions/0067-closed-forms-of-nccl-and-gloo.md names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.costs.sockets import LIBRARIES, MIB, Cluster

DATA = Path(__file__).parent / "data"
MTU_BYTES = 9001
"""Largest IP packet of both clusters: their shaped times fit it, and not 1500."""
AWS_FLOW_BIT_S = 5e9
"""Most that AWS carries on one flow outside of a placement group."""
UNSHAPED, UNSHAPED_BIT_S, UNSHAPED_RTT_S = "10G, not shaped", 10e9, 0.2e-3
"""Cards of 10 Gbit/s; the round trip is assumed."""
SHAPED = ("1ms 5G", "5ms 2G", "10ms 1G")
SIZES_MIB = (128, 256)
GROUPED = {
    "all_reduce": "N all-reduces",
    "central_server": "N reduces, N broadcasts",
    "sharded_server": "all-to-all, all-gather",
}
LINKS = {"5g": 5e9, "1g": 1e9, "200m": 200e6, "50m": 50e6}
"""Rates of the cluster with tbf."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published time and what its closed form gives."""

    operation: str
    library: str
    nodes: int
    link: str
    size_mib: int
    measured_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1

    @property
    def is_shaped(self) -> bool:
        return self.link != UNSHAPED


def aws(nodes: int, link: str) -> Cluster:
    """Return the cluster of `link` as the files say it: a one-way delay, a rate, both, or a text for neither."""
    round_trip_s, rate_bit_s = UNSHAPED_RTT_S, UNSHAPED_BIT_S
    if link != UNSHAPED:
        for word in link.split():
            if word.endswith("ms"):
                round_trip_s = 2e-3 * float(word.removesuffix("ms"))
            else:
                rate_bit_s = 1e9 * float(word.removesuffix("G"))
    return Cluster(
        nodes=nodes,
        rate_bit_s=rate_bit_s,
        round_trip_s=round_trip_s,
        mtu_bytes=MTU_BYTES,
        flow_cap_bit_s=AWS_FLOW_BIT_S,
    )


def form_s(library: str, operation: str, size_bytes: float, cluster: Cluster) -> float:
    """Return the time of an operation: all_reduce, broadcast, reduce or send."""
    found: float = getattr(LIBRARIES[library], f"{operation}_s")(size_bytes, cluster)
    return found


def all_reduces(library: str) -> list[Row]:
    return list(_rows("gloo-nccl-tc", "all_reduce", "all_reduce", library, SIZES_MIB))


def sends(library: str) -> list[Row]:
    return list(_rows("gloo-nccl-tc", "point_to_point_recv", "send", library, (64, 128)))


def chains(library: str) -> list[Row]:
    """Return broadcasts and reduces."""
    kinds = ("broadcast", "reduce")
    return [row for kind in kinds for row in _rows("broadcast-reduce-tc", kind, kind, library, SIZES_MIB)]


def grouped() -> list[Row]:
    """Return synchronisations by several NCCL calls over tensors of a total, as many tensors as nodes."""
    content = content_of("grouped-synchronisation-tc")
    return [
        Row(
            operation=kind,
            library="nccl",
            nodes=found["nodes"],
            link=_link(found["setting"]),
            size_mib=found["total_MiB"],
            measured_s=found["seconds"],
            predicted_s=_grouped_s(kind, found["total_MiB"] * MIB, aws(found["nodes"], _link(found["setting"]))),
        )
        for kind in GROUPED
        for found in content[kind]
    ]


def _grouped_s(kind: str, total_bytes: float, cluster: Cluster) -> float:
    nccl, each = LIBRARIES["nccl"], total_bytes / cluster.nodes
    if kind == "all_reduce":
        return cluster.nodes * nccl.all_reduce_s(each, cluster)
    if kind == "central_server":
        # a chain begins the next tensor while it passes on the last
        return nccl.reduce_s(total_bytes, cluster) + nccl.broadcast_s(total_bytes, cluster)
    return 2 * nccl.send_s((cluster.nodes - 1) * each, cluster)


@dataclass(frozen=True, kw_only=True)
class Streams:
    """TCP streams side by side on a path, and what windows and the interface let them carry."""

    path: str
    round_trip_s: float
    streams: int
    measured_bit_s: float
    predicted_bit_s: float

    @property
    def error(self) -> float:
        return self.predicted_bit_s / self.measured_bit_s - 1


def streams() -> list[Streams]:
    """Return the published rates of one to 80 streams; the interface is what one stream reaches in a zone."""
    rows = content_of("tcp-streams")["rows"]
    ratio = Cluster(nodes=2, rate_bit_s=1.0, round_trip_s=0.0).wire_ratio
    interface_bit_s = max(row["mean_mbit_s"] for row in rows) * 1e6 * ratio
    found = []
    for row in rows:
        round_trip_s = row["round_trip_ms"] / 1e3
        cluster = Cluster(nodes=2, rate_bit_s=interface_bit_s, round_trip_s=round_trip_s)
        found.append(
            Streams(
                path=row["path"],
                round_trip_s=round_trip_s,
                streams=row["streams"],
                measured_bit_s=row["mean_mbit_s"] * 1e6,
                predicted_bit_s=cluster.reached_bit_s(row["streams"]) / ratio,
            )
        )
    return found


def content_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return found


def _link(setting: str) -> str:
    return UNSHAPED if setting.startswith("default") else setting


def _rows(name: str, key: str, operation: str, library: str, sizes_mib: tuple[int, ...]) -> Iterator[Row]:
    for found in content_of(name)[key]:
        nodes, link = found.get("nodes", 2), _link(found["setting"])
        for size_mib in sizes_mib:
            yield Row(
                operation=operation,
                library=library,
                nodes=nodes,
                link=link,
                size_mib=size_mib,
                measured_s=found[f"{library}_{size_mib}MiB_ms"] / 1e3,
                predicted_s=form_s(library, operation, size_mib * MIB, aws(nodes, link)),
            )
