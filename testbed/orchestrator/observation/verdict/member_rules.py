"""Rules of the verdict on workers: one that a run went on without, though no event asked for it; one that floods it."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.core.units import format_size, format_time
from testbed.orchestrator.observation.verdict.link_rules import Event, Finding

MAX_REASON_CHARACTERS = 300
_BEFORE_S = 1.0
"""That a departure may be recorded before the crash it comes from."""


class Departures:
    """Of strategies that outlive a worker; of all others such a run fails. Who came back too late was gone by then."""

    def __init__(self) -> None:
        self._left: list[Event] = []
        self._asked: dict[str, list[float]] = {}
        """When a node was to go."""

    def add(self, event: Event) -> None:
        if event["event"] == "left" and not event["late"]:
            self._left.append(event)
        elif event["event"] == "change" and event["what"] == "crash":
            self._asked.setdefault(event["node"], []).append(event["t_s"])

    def findings(self) -> Iterator[Finding]:
        asked = {node: sorted(times) for node, times in self._asked.items()}
        for event in self._left:
            times = asked.get(event["node"], [])
            if times and times[0] <= event["t_s"] + _BEFORE_S:
                times.pop(0)
                continue
            why = event["message"].replace("\n", "; ")[:MAX_REASON_CHARACTERS]
            at = format_time(max(0.0, event["t_s"]))
            yield False, f"worker {event['rank']} on {event['node']} left at {at}, and the others went on: {why}"


class Floods:
    """Workers that sent more messages than a run bears: they waited for the orchestrator, not for the network."""

    def __init__(self) -> None:
        self._last: dict[int, Event] = {}

    def add(self, event: Event) -> None:
        if event["event"] == "held_back":
            self._last[event["rank"]] = event

    def findings(self) -> Iterator[Finding]:
        for rank, event in sorted(self._last.items()):
            sent = f"{event['messages']} messages, {format_size(event['size_bytes'])}"
            held = format_time(event["held_s"])
            who = f"worker {rank} on {event['node']}"
            yield False, f"{who} sent more than a run's record takes ({sent}), and was held back for {held}"
