"""What a shaper does: give each direction of a WAN link its delay, jitter and loss on the middle node.

The rate is not its business: tbf sits on the routers (`emulation.tc`), on other interfaces than the delay.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.core.topology import LinkProfile

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Direction:
    """One way through a middle node."""

    link: str
    source: str
    target: str
    arrives_on: str
    """Interface of the middle node on which its packets come in."""
    profile: LinkProfile
    limit_packets: int
    """Packets in flight that the shaper must be able to hold."""
    seed: int
    """Of its losses and jitter."""


class DelayShaper(ABC):
    """Delay, jitter and loss of one WAN link, both ways, on its middle node.

    `apply` raises `RunError` unless `read_back` agrees with what was asked. Nothing is ever silently unshaped.
    """

    priority = "kernel"
    """Of whatever holds the packets."""

    def __init__(self, middle: Any, directions: tuple[Direction, Direction], report: Report) -> None:
        self.middle = middle
        self.directions = directions
        self.report = report
        """Takes a `delay_line` event each second."""

    @abstractmethod
    def apply(self) -> None: ...

    @abstractmethod
    def read_back(self) -> list[dict[str, Any]]:
        """One entry a direction: `delay_s`, `jitter_s`, `loss_ratio`, `limit_packets` as in force."""

    @abstractmethod
    def clear(self) -> None: ...

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """Whether the link still carries packets."""
