"""What the kernel says of the routes of a namespace, as it answers to rtnetlink."""

from __future__ import annotations

import struct

from testbed.core.errors import RunError
from testbed.orchestrator.emulation.netlink import RouteSocket, attributes
from testbed.orchestrator.emulation.requests import RTAX_RTO_MIN

_RTM_GETROUTE = 26
_HEADER_BYTES, _BODY = 16, struct.Struct("=BBBBBBBBI")
"""rtmsg: family, lengths, service; table, protocol, scope, type; flags."""
_PROTOCOL_STATIC = 4
_RTA_METRICS = 8
_RTAX_LOCK = 1


def least_time_outs_s(routes: RouteSocket) -> list[float | None]:
    """TCP's least retransmission time-out by each route that was added here; None where the kernel heeds none.

    It keeps milliseconds, and heeds only a locked one.
    """
    return [
        _least_time_out_s(message)
        for message in routes.dump(_RTM_GETROUTE, _BODY.size)
        if _BODY.unpack_from(message, _HEADER_BYTES)[5] == _PROTOCOL_STATIC
    ]


def _least_time_out_s(message: bytes) -> float | None:
    metrics = attributes(attributes(message[_HEADER_BYTES + _BODY.size :]).get(_RTA_METRICS, b""))
    locked = int.from_bytes(metrics.get(_RTAX_LOCK, b""), "little") >> RTAX_RTO_MIN & 1
    return int.from_bytes(metrics[RTAX_RTO_MIN], "little") / 1000 if locked and RTAX_RTO_MIN in metrics else None


def verify_least_time_out(routes: RouteSocket, asked_s: float, where: str) -> None:
    """Raises:
    RunError: some route that was added here has another one, or none that is heeded.
    """
    for found_s in least_time_outs_s(routes):
        if found_s != round(asked_s, 3):
            found = "none" if found_s is None else f"{found_s:g} s"
            raise RunError(f"{where}: asked a least time-out of {asked_s:g} s of each route, kernel reports {found}")
