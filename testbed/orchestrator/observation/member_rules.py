"""Rules of the verdict on who was there: a worker that a run went on without, though no event asked for it."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.core.units import format_time
from testbed.orchestrator.observation.link_rules import Event, Finding

MOST_REASON_CHARACTERS = 300


class Departures:
    """Of strategies that outlive a worker; of all others such a run fails."""

    def __init__(self) -> None:
        self._left: list[Event] = []
        self._asked: dict[str, int] = {}
        """How often a node was to go."""

    def add(self, event: Event) -> None:
        if event["event"] == "left":
            self._left.append(event)
        elif event["event"] == "change" and event["what"] == "crash":
            self._asked[event["node"]] = self._asked.get(event["node"], 0) + 1

    def findings(self) -> Iterator[Finding]:
        asked = dict(self._asked)
        for event in self._left:
            if asked.get(event["node"], 0):
                asked[event["node"]] -= 1
                continue
            why = event["message"].replace("\n", "; ")[:MOST_REASON_CHARACTERS]
            at = format_time(max(0.0, event["t_s"]))
            yield False, f"worker {event['rank']} on {event['node']} left at {at}, and the others went on: {why}"
