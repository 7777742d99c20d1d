"""Link profiles as they change during a run, per direction of each WAN link."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from testbed.core.spec.link_profile import MAX_DELAY_S, MAX_RATE_BIT_S, MIN_RATE_BIT_S, LinkProfile
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
    """Faults of the directions of WAN links as they change."""

    def __init__(self, topology: Topology) -> None:
        self._own = _directions(topology)
        self._now: dict[tuple[str | None, str], tuple[dict[str, float], list[str]]] = {}
        """Values that were set and their faults, by link and source."""

    def apply(self, change: Change) -> Iterator[tuple[str, list[str], list[str]]]:
        """Yield source, and faults before and after, of each direction that a "set" makes impossible."""
        for source, own in self._own.get(str(change.link), {}).items():
            if change.source is None or change.source == source:
                values, before = self._now.get((change.link, source), ({}, []))
                values = {**values, **change.values}
                after = [] if _surely_holds(own, values) else self._faults(own, values)
                self._now[change.link, source] = values, after
                if after:
                    yield source, before, after

    @staticmethod
    def _faults(own: LinkProfile, values: dict[str, float]) -> list[str]:
        changed: dict[str, Any] = dict(values)
        return list(dataclasses.replace(own, **changed).faults(""))


def _surely_holds(own: LinkProfile, values: dict[str, float]) -> bool:
    """Return True for values of which none can have a fault, as of most rows of a long trace."""
    return (
        MIN_RATE_BIT_S <= values.get("rate_bit_s", own.rate_bit_s) <= MAX_RATE_BIT_S
        and 0 < values.get("delay_s", own.delay_s) <= MAX_DELAY_S
        and 0 <= values.get("jitter_s", own.jitter_s) <= values.get("delay_s", own.delay_s)
        and 0 <= values.get("loss_ratio", own.loss_ratio) < 1
        and not own.loss_burst_packets
    )


def _directions(topology: Topology) -> dict[str, dict[str, LinkProfile]]:
    """Return the profiles of each WAN link by where they begin, by its name."""
    return {link.name: {start: profile for start, _, profile in link.directions()} for link in topology.wan_links}
