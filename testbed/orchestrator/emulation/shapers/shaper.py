"""The shapers, which delay packets on the middle nodes of WAN links.

Rates are not a shaper's business: they sit on the routers (`emulation.tc`), on other interfaces than the delay.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any, ClassVar

from testbed.core.errors import RunError
from testbed.core.spec.link_profile import LinkProfile
from testbed.orchestrator.emulation.kernel.dilation import emulated
from testbed.orchestrator.emulation.kernel.namespaces import Namespace

Report = Callable[[dict[str, Any]], None]
Key = tuple[str, str]
"""A direction: its link, and the end at which it begins."""
FIELDS = (
    "delay_s",
    "jitter_s",
    "jitter_distribution",
    "loss_ratio",
    "loss_burst_packets",
    "bad_loss_ratio",
    "good_loss_ratio",
    "duplicate_ratio",
    "reorder_ratio",
)
"""Fields of a `LinkProfile` that a shaper does, and reads back."""
_MIN_LIMIT_PACKETS = 20_000
_FRAME_BYTES = 1500


@dataclass(frozen=True)
class Hop:
    """One way through a middle node."""

    link: str
    source: str
    target: str
    namespace: Namespace
    """The middle node's."""
    arrives_on: str
    """Interface on which its packets come in."""
    leaves_on: str
    near: IPv4Network | None
    """Addresses of the region at which it begins, None if no worker is there.

    All that comes from elsewhere has come over other WAN links.
    """
    profile: LinkProfile
    limit_packets: int
    """Packets in flight that the shaper must be able to hold."""
    seed: int
    """Start of the random numbers for its losses and jitter."""
    dilation: float = 1.0
    """All of this is so many times slower than emulated; a user reads what is emulated."""

    @property
    def key(self) -> Key:
        return self.link, self.source


def limit_packets(profile: LinkProfile) -> int:
    """Four times what is in flight: single packets may be small, and delays jump."""
    in_flight = profile.rate_bit_s / 8 * (profile.delay_s + profile.jitter_s) / _FRAME_BYTES
    return max(math.ceil(4 * in_flight), _MIN_LIMIT_PACKETS)


def asked_of(profile: LinkProfile) -> dict[str, Any]:
    """Return what `read_back` must say of a direction with this profile."""
    return {field: getattr(profile, field) for field in FIELDS}


class Shaper(ABC):
    """Delay, jitter, loss, duplication and reordering of all WAN links of a network, each way apart.

    `apply` and `change` raise `RunError` unless `read_back` agrees with what was asked: nothing is ever silently
    unshaped. Each second a shaper reports, for every direction, a `delay_line` event (`core.record.events`).
    """

    name: ClassVar[str]

    def __init__(self, hops: Sequence[Hop], report: Report) -> None:
        self.hops = {hop.key: hop for hop in hops}
        self.report = report

    @abstractmethod
    def apply(self) -> None: ...

    @abstractmethod
    def read_back(self) -> dict[Key, dict[str, Any]]:
        """Return of each direction `FIELDS` as in force, `limit_packets`, `shaper`, and the packets' `priority`."""

    def read_one(self, key: Key) -> dict[str, Any] | None:
        """Return it for one direction; None if nothing shapes it."""
        return self.read_back().get(key)

    @abstractmethod
    def change(self, key: Key, profile: LinkProfile, limit_packets: int) -> None:
        """From now on; packets already held keep their time."""

    def retime(self, hops: Sequence[Hop]) -> None:
        """Give all directions the terms of another dilation, from now on."""
        self.hops = {hop.key: hop for hop in hops}
        for hop in hops:
            self.change(hop.key, hop.profile, hop.limit_packets)

    @abstractmethod
    def set_down(self, key: Key, down: bool) -> None:
        """A direction that is down loses every packet; those lost so are not counted as drops."""

    @abstractmethod
    def clear(self) -> None: ...

    @property
    @abstractmethod
    def failure(self) -> str | None:
        """The reason why links carry nothing any more; None while they do."""

    def verify(self, key: Key, profile: LinkProfile, limit_packets: int) -> None:
        """Raise `RunError` unless what is in force is what was asked."""
        found = self.read_one(key)
        link, source = key
        if found is None:
            raise RunError(f"link {link} from {source}: asked for the {self.name} shaper, the kernel has none there")
        for field, value in {**asked_of(profile), "limit_packets": limit_packets}.items():
            if not _agree(value, found[field]):
                k = self.hops[key].dilation
                asked, does = (emulated({field: said}, k)[field] for said in (value, found[field]))
                raise RunError(f"link {link} from {source}: asked {field}={asked}, the shaper does {does}")


def _agree(asked: Any, found: Any) -> bool:
    """Kernels round delays to ticks and ratios to 2**-32."""
    if isinstance(asked, float | int) and isinstance(found, float | int):
        return abs(asked - found) <= max(1e-6, 1e-3 * abs(asked))
    return bool(asked == found)
