"""Delay by the kernel's own sch_netem, at the root of the interface on which packets leave a middle node.

Nothing of ours handles a packet, so nothing of ours can be late; nor does the kernel say how late it was. Losses are
drawn from the seed where the kernel is 6.6 or later, and not repeatable before (`seeded` in the record).

netem counts lost packets and those it had no room for as one (`drops`). So `queue_drops` is only known where no loss
was asked; elsewhere lack of room shows as more loss than was asked.

netem draws jitter for each packet and, told a rate, sends none before the one in front of it. So packets closer to each
other than the jitter wait for the latest before them: on a dense stream the mean delay is longer than asked, and its
spread another one (docs/topologies.md, Limits).
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testbed.core.errors import RunError
from testbed.core.record.events.network import DelayLine
from testbed.core.spec.link_profile import LinkProfile
from testbed.orchestrator.emulation.kernel.netlink import RouteSocket, attributes
from testbed.orchestrator.emulation.kernel.netlink_requests import Request
from testbed.orchestrator.emulation.shapers import netem_options
from testbed.orchestrator.emulation.shapers.netem_options import NetemSettings
from testbed.orchestrator.emulation.shapers.shaper import Hop, Key, Report, Shaper

_RTM_GETLINK, _RTM_NEWQDISC, _RTM_GETQDISC = 18, 36, 38
_F_REQUEST, _F_EXCL, _F_CREATE = 0x1, 0x200, 0x400
_HEADER_BYTES = 16
_TCM = struct.Struct("=BBHiIII")
"""Family, padding, interface, handle, parent, info."""
_LINK = struct.Struct("=BBHiII")
"""Family, padding, type, interface, flags, change."""
_TC_H_ROOT = 0xFFFFFFFF
_TCA_STATS2, _TCA_STATS_QUEUE = 7, 3
_IFLA_IFNAME, _IFLA_STATS64 = 3, 23
_REPORT_EVERY_S = 1.0


def _request(flags: int, index: int, options: bytes, said: str) -> Request:
    """By hand: pyroute2 knows neither the Gilbert-Elliott chain nor the seed."""
    body = _TCM.pack(0, 0, 0, index, 0, _TC_H_ROOT, 0) + options
    header = struct.pack("=IHHII", _HEADER_BYTES + len(body), _RTM_NEWQDISC, _F_REQUEST | flags, 0, 0)
    return Request(header + body, said)


@dataclass(frozen=True)
class _Counts:
    """Since the devices were made. A GSO super-packet counts as one, as it does for netem."""

    arrived: int
    left: int
    waiting: int
    dropped: int


class _Way:
    """One direction: its qdisc, and what became of its packets."""

    def __init__(self, hop: Hop, socket: RouteSocket) -> None:
        self.hop = hop
        self.profile = hop.profile
        self.limit_packets = hop.limit_packets
        self.is_down = False
        self._socket = socket
        indices = _indices(socket)
        self._in, self._out = indices[hop.arrives_on], indices[hop.leaves_on]
        self._changes = 0
        self._lock = threading.Lock()
        self._counts = self._read_counts()
        self.packets = self.drops = self.doubled = self.queue_drops = 0
        self.asked_drops = self.asked_drops_variance = 0.0

    @property
    def where(self) -> str:
        return f"link {self.hop.link} from {self.hop.source}"

    def set(self, profile: LinkProfile, limit_packets: int, *, is_down: bool = False, flags: int = 0) -> None:
        """Put it in force. What passes meanwhile is not counted: it may have met the old as well as the new."""
        with self._lock:
            self._settle()
            self.profile, self.limit_packets, self.is_down = profile, limit_packets, is_down
            asked = self._asked()
            options = netem_options.encode(asked, profile.jitter_distribution)
            self._socket.send([_request(flags, self._out, options, f"netem {asked}")], self.where)
            self._changes += 1
            self._counts = self._read_counts()

    def _asked(self) -> NetemSettings:
        # a seed for each change: the same losses must not come again
        seed = (self._changes << 32) | self.hop.seed
        transmits = self.hop.near is not None  # netem would hold up super-packets in transit as a whole
        asked = netem_options.settings_of(self.profile, self.limit_packets, seed, transmits=transmits)
        return netem_options.losing_all(asked) if self.is_down else asked

    def found(self) -> NetemSettings | None:
        return netem_options.decode(self._qdisc())

    def _qdisc(self) -> dict[int, bytes]:
        message = self._socket.get(_RTM_GETQDISC, _TCM.pack(0, 0, 0, self._out, 0, _TC_H_ROOT, 0))
        return attributes(message[_HEADER_BYTES + _TCM.size :])

    def _read_counts(self) -> _Counts:
        """Of the qdisc first: a packet that comes in between is one that is still on its way."""
        queue = attributes(self._qdisc().get(_TCA_STATS2, b"")).get(_TCA_STATS_QUEUE, bytes(12))
        waiting, _, dropped = struct.unpack_from("=III", queue)
        return _Counts(self._interface(self._in)[0], self._interface(self._out)[1], waiting, dropped)

    def _interface(self, index: int) -> tuple[int, int]:
        """Packets (received, sent)."""
        message = self._socket.get(_RTM_GETLINK, _LINK.pack(0, 0, 0, index, 0, 0))
        received, sent = struct.unpack_from("=QQ", attributes(message[_HEADER_BYTES + _LINK.size :])[_IFLA_STATS64])
        return received, sent

    def _settle(self) -> None:
        """Add what came since the last time; while the link was down, nothing."""
        before, now = self._counts, self._read_counts()
        self._counts = now
        if self.is_down:
            return
        dropped = (now.dropped - before.dropped) % 2**32
        passed = now.left - before.left + now.waiting - before.waiting + dropped
        arrived = passed
        if self.profile.duplicate_ratio:  # the interface it arrives on sees frames too that go no further
            arrived = now.arrived - before.arrived
            self.doubled += passed - arrived
        self.packets += arrived
        self.drops += dropped
        self.asked_drops += arrived * self.profile.loss_ratio
        self.asked_drops_variance += arrived * self.profile.loss_variance
        if not self.profile.loss_ratio:
            self.queue_drops += dropped

    def report(self, interval_s: float) -> dict[str, Any]:
        with self._lock:
            self._settle()
            return DelayLine(
                name=self.hop.link,
                from_=self.hop.source,
                to=self.hop.target,
                late_p50_s=None,
                late_p99_s=None,
                late_max_s=None,
                delay_mean_s=None,
                delay_deviation_s=None,
                packets=self.packets,
                drops=self.drops,
                asked_drops=self.asked_drops,
                asked_drops_variance=self.asked_drops_variance,
                doubled=max(0, self.doubled),
                interval_s=interval_s,
                queue_drops=self.queue_drops,
            ).to_json()


def _indices(socket: RouteSocket) -> dict[str, int]:
    found = {}
    for message in socket.dump(_RTM_GETLINK, _LINK.size):
        _, _, _, index, _, _ = _LINK.unpack_from(message, _HEADER_BYTES)
        found[attributes(message[_HEADER_BYTES + _LINK.size :])[_IFLA_IFNAME].rstrip(b"\0").decode()] = index
    return found


class NetemShaper(Shaper):
    """A qdisc a direction, and a thread that reports what they count."""

    name = "netem"

    def __init__(self, hops: Sequence[Hop], report: Report) -> None:
        super().__init__(hops, report)
        self._ways: dict[Key, _Way] = {}
        self._sockets: dict[str, RouteSocket] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: str | None = None

    def apply(self) -> None:
        for key, hop in self.hops.items():
            path = hop.namespace.path
            if path not in self._sockets:
                self._sockets[path] = RouteSocket(path)
            way = self._ways[key] = _Way(hop, self._sockets[path])
            way.set(hop.profile, hop.limit_packets, flags=_F_CREATE | _F_EXCL)
            self.verify(key, hop.profile, hop.limit_packets)
        self._thread = threading.Thread(target=self._watch, name="netem", daemon=True)
        self._thread.start()

    def read_back(self) -> dict[Key, dict[str, Any]]:
        found = {key: self.read_one(key) for key in self._ways}
        return {key: in_force for key, in_force in found.items() if in_force is not None}

    def read_one(self, key: Key) -> dict[str, Any] | None:
        settings = self._ways[key].found()
        if settings is None:
            return None
        in_force = netem_options.read_back(settings, self._ways[key].profile)
        return {"shaper": self.name, "priority": "kernel", **in_force}

    def verify(self, key: Key, profile: LinkProfile, limit_packets: int) -> None:
        super().verify(key, profile, limit_packets)
        found = self.read_one(key)
        if found is None or not found["keeps_order"]:
            raise RunError(f"{self._ways[key].where}: asked jitter without reordering, the kernel would reorder")

    def change(self, key: Key, profile: LinkProfile, limit_packets: int) -> None:
        way = self._ways[key]
        way.set(profile, limit_packets, is_down=way.is_down)
        if not way.is_down:
            self.verify(key, profile, limit_packets)

    def set_down(self, key: Key, down: bool) -> None:
        way = self._ways[key]
        way.set(way.profile, way.limit_packets, is_down=down)
        found = way.found()
        if down and (found is None or found.mean_loss_ratio < 1):
            raise RunError(f"{way.where}: asked to lose every packet, the kernel does {found}")
        if not down:
            self.verify(key, way.profile, way.limit_packets)

    def clear(self) -> None:
        """The qdiscs go with their devices."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        for socket in self._sockets.values():
            socket.close()
        self._sockets = {}

    @property
    def failure(self) -> str | None:
        return self._failure

    def report_of(self, key: Key, interval_s: float = 0.0) -> dict[str, Any]:
        """The direction's `delay_line` event, counted up to now."""
        return self._ways[key].report(interval_s)

    def _watch(self) -> None:
        reported_s = time.monotonic()
        while not self._ended.wait(_REPORT_EVERY_S):
            now_s = time.monotonic()
            try:
                for key in self._ways:
                    self.report(self.report_of(key, now_s - reported_s))
            except (OSError, KeyError) as error:
                self._failure = f"the netem qdiscs can no longer be read: {error!r}"
                return
            reported_s = now_s
