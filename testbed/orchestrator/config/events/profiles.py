"""Link profiles as they change during a run, per direction of each WAN link."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from testbed.core.spec.link_profile import MAX_RATE_BIT_S, MIN_RATE_BIT_S, LinkProfile
from testbed.core.spec.schedule import Change
from testbed.core.spec.topology import Topology


class Profiles:
    """Every direction of the WAN links as the topology has it, with all that was set since."""

    def __init__(self, topology: Topology) -> None:
        self._current = _directions(topology)

    def apply(self, change: Change) -> Iterator[tuple[str, str, LinkProfile, LinkProfile]]:
        """Yield link, source, and profile before and after of each direction of a "set"."""
        values: dict[str, Any] = dict(change.values)
        directions = self._current.get(str(change.link), {})
        for source in [one for one in directions if change.source in (None, one)]:
            before = directions[source]
            directions[source] = after = dataclasses.replace(before, **values)
            yield str(change.link), source, before, after


class ProfileFaults:
    """Faults of the directions of WAN links as they change; values that recur in a long trace are looked at once."""

    def __init__(self, topology: Topology) -> None:
        self._own = {
            link.name: {start: profile for start, _, profile in link.directions()} for link in topology.wan_links
        }
        self._now: dict[tuple[str | None, str], tuple[dict[str, float], list[str]]] = {}
        """Values that were set and their faults, by link and source."""
        self._found: dict[tuple[object, ...], list[str]] = {}

    def apply(self, change: Change) -> Iterator[tuple[str, list[str], list[str]]]:
        """Yield source, and faults before and after, of each direction that a "set" makes impossible."""
        for source, own in self._own.get(str(change.link), {}).items():
            if change.source in (None, source):
                values, before = self._now.get((change.link, source), ({}, []))
                values = {**values, **change.values}
                after = self._faults(own, values)
                self._now[change.link, source] = values, after
                if after:
                    yield source, before, after

    def _faults(self, own: LinkProfile, values: dict[str, float]) -> list[str]:
        rate_bit_s = values.get("rate_bit_s", own.rate_bit_s)
        if MIN_RATE_BIT_S <= rate_bit_s <= MAX_RATE_BIT_S:
            rate_bit_s = 0.0  # nothing else depends on which one it is
        key = (id(own), rate_bit_s, values.get("delay_s"), values.get("jitter_s"), values.get("loss_ratio"))
        if (found := self._found.get(key)) is None:
            changed: dict[str, Any] = dict(values)
            found = self._found[key] = list(dataclasses.replace(own, **changed).faults(""))
        return found


def _directions(topology: Topology) -> dict[str, dict[str, LinkProfile]]:
    """Return the profiles of each WAN link by where they begin, by its name."""
    return {link.name: {start: profile for start, _, profile in link.directions()} for link in topology.wan_links}
