"""What was asked of each direction of a WAN link at a moment of the run: the topology, and every change since."""

from __future__ import annotations

import dataclasses
from typing import Any

from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import Topology
from testbed.orchestrator.emulation.shapers.delay import Delay

SETTLE_S = 1.0
"""Beside a round trip, how long after a change figures may still be of what was before."""


class LinkReference:
    """Fed the `change` events of a record, in order."""

    def __init__(self, topology: Topology) -> None:
        self.links = {link.name: link for link in topology.wan_links}
        self._profiles = {
            (link.name, start): profile for link in topology.wan_links for start, _, profile in link.directions()
        }
        self._changed_s: dict[str, float] = {}
        self._down: set[str] = set()
        self._set: set[tuple[str, str, str]] = set()
        """(link, source, field of the profile) of what any event has set."""

    def change(self, event: dict[str, Any]) -> None:
        name = event["name"]
        if name not in self.links:
            return
        self._changed_s[name] = event["t_s"]
        if event["what"] == "set":
            key = name, event["from"]
            self._set |= {(*key, field) for field in event["after"]}
            self._profiles[key] = dataclasses.replace(self._profiles[key], **event["after"])
        elif event["what"] == "down":
            self._down.add(name)
        else:
            self._down.discard(name)

    def has_changed(self, name: str, source: str, field: str) -> bool:
        """Return True if an event has set this field of a direction's profile."""
        return (name, source, field) in self._set

    def profile(self, name: str, source: str) -> LinkProfile:
        return self._profiles[name, source]

    def rtt_s(self, name: str) -> float:
        link = self.links[name]
        return self.profile(name, link.a).delay_s + self.profile(name, link.b).delay_s

    def delays(self, name: str) -> tuple[Delay, Delay]:
        """From `a` to `b`, and back."""
        link = self.links[name]
        return Delay.of(self.profile(name, link.a)), Delay.of(self.profile(name, link.b))

    def reorders(self, name: str) -> bool:
        """Whether some packets overtake the others, so that the least delay says nothing."""
        link = self.links[name]
        return bool(self.profile(name, link.a).reorder_ratio or self.profile(name, link.b).reorder_ratio)

    def is_settled(self, name: str, t_s: float) -> bool:
        """Whether a figure of this moment can be of what is asked now."""
        if name in self._down:
            return False
        changed_s = self._changed_s.get(name)
        return changed_s is None or t_s > changed_s + self.rtt_s(name) + SETTLE_S
