"""Link profiles as they change during a run, per direction of each WAN link."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.schedule import Change
from testbed.core.spec.topology import Topology


class Profiles:
    """Every direction of the WAN links as the topology has it, with all that was set since."""

    def __init__(self, topology: Topology) -> None:
        self._current = {
            (link.name, start): profile for link in topology.wan_links for start, _, profile in link.directions()
        }

    def apply(self, change: Change) -> Iterator[tuple[str, str, LinkProfile, LinkProfile]]:
        """Of each direction of a "set": link, source, profile before and after."""
        values: dict[str, Any] = dict(change.values)
        for (link, source), before in self._current.items():
            if link == change.link and change.source in (None, source):
                after = dataclasses.replace(before, **values)
                self._current[link, source] = after
                yield link, source, before, after
