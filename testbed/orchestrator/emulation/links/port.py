"""Where one direction of a link is limited: an interface, with its rate as asked and as the kernel reports it."""

from __future__ import annotations

import dataclasses
import socket
from dataclasses import dataclass
from typing import Any

from testbed.core.errors import RunError
from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import Link
from testbed.core.units import format_rate
from testbed.orchestrator.emulation.kernel import tc
from testbed.orchestrator.emulation.kernel.dilation import emulated
from testbed.orchestrator.emulation.kernel.queue_counters import QueueCounters, QueueReader
from testbed.orchestrator.emulation.links.node import NamespaceNode

WAKING_BYTES = 60
"""Sent on an interface whenever its rate has changed."""
_NO_ONE = bytes.fromhex("020000000000")
_EXPERIMENTAL = bytes.fromhex("88b5")
"""EtherType for local experiments (IEEE 802)."""


@dataclass
class Port:
    """One direction, where its rate sits. All in wall-clock terms: with dilation k, rates are k times lower.

    What a user reads is emulated, as he asked for it.
    """

    link: Link
    source: str
    target: str
    node: NamespaceNode
    interface: str
    index: int
    profile: LinkProfile
    settings: tc.RateSettings
    queues: QueueReader | None = None
    found: tc.RateSettings | None = None
    delay: dict[str, Any] | None = None
    """What the shaper read back."""
    changes: int = 0
    """How often the rate was changed: a window in which it was says nothing."""
    dilation: float = 1.0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.link.name, self.source, self.target

    @property
    def where(self) -> str:
        return f"link {self.link.name} from {self.source} to {self.target}"

    def read(self) -> QueueCounters:
        assert self.queues is not None
        return self.queues.read_one(self.interface)

    def verify(self) -> None:
        """Read the rate back.

        Raises:
            RunError: the kernel limits to another rate, or not at all.
        """
        assert self.queues is not None
        self.found = tc.parse_tbf(self.queues.settings(self.interface))
        asked, found = self._emulated(self.settings), self.found and self._emulated(self.found)
        wrong = tc.disagreement(asked, found)
        if wrong:
            raise RunError(f"{self.where}: asked {format_rate(asked.rate_bit_s)}, {wrong} after it was applied")

    def _emulated(self, settings: tc.RateSettings) -> tc.RateSettings:
        return dataclasses.replace(settings, rate_bit_s=settings.rate_bit_s * self.dilation)

    def change(self, profile: LinkProfile, settings: tc.RateSettings) -> None:
        """Another rate from now on; what waits in the queue stays there."""
        self.profile = profile
        if settings == self.settings:
            return
        self.settings = settings
        self.changes += 1
        self.node.route_socket.send([tc.tbf(self.index, settings, change=True)], self.where)
        self._wake()
        self.verify()

    def _wake(self) -> None:
        """tbf does not set its timer anew on a change: it would send again when the old rate would have. A frame does.

        The frame ends at the other end of the wire, which knows no such protocol.
        """
        with self.node.namespace.call(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) as raw:
            raw.bind((self.interface, 0))
            raw.send(_NO_ONE + _NO_ONE + _EXPERIMENTAL + bytes(WAKING_BYTES - 14))

    def to_json(self, k: float) -> dict[str, Any]:
        """The link's entry of `network.json`, before anything is measured, in emulated time (dilation k)."""
        asked = {
            "rate_bit_s": self.profile.rate_bit_s,
            "delay_s": self.profile.delay_s,
            "jitter_s": self.profile.jitter_s,
            "jitter_distribution": self.profile.jitter_distribution,
            "rtt_s": self.link.rtt_s,
            "loss_ratio": self.profile.loss_ratio,
            "loss_burst_packets": self.profile.loss_burst_packets,
            "duplicate_ratio": self.profile.duplicate_ratio,
            "reorder_ratio": self.profile.reorder_ratio,
            "flow_rate_bit_s": self.profile.flow_rate_bit_s,
        }
        if self.profile.flow_cap_bit_s is not None:
            asked["flow_cap_bit_s"] = self.profile.flow_cap_bit_s
        found = self.found
        return {
            "name": self.link.name,
            "from": self.source,
            "to": self.target,
            "wan": self.link.wan,
            "asked": {
                **emulated(asked, k),
                "burst_bytes": self.settings.burst_bytes,
                "limit_bytes": self.settings.limit_bytes,
                "unit": self.settings.unit,
                "most_unit_bytes": self.settings.most_unit_bytes,
                "source": self.profile.source,
            },
            "read_back": {
                **emulated({"rate_bit_s": found.rate_bit_s if found else None, **(self.delay or {})}, k),
                "burst_bytes": found.burst_bytes if found else None,
                "limit_bytes": found.limit_bytes if found else None,
                "unit": found.unit if found else None,
                "most_unit_bytes": found.most_unit_bytes if found else None,
            },
            "measured": {"rate_bit_s": None, "rtt_s": None, "delay_s": None, "loss_ratio": None},
            "measurements": [],
        }
