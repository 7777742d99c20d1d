"""Rules of the verdict on a user's script: whether it used the network that the run is about."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.core.spec.run_spec import RunSpec
from testbed.core.units import format_size
from testbed.orchestrator.observation.verdict.link_rules import Event, Finding

LEAST_BYTES = 500
"""Bytes on the wire that a worker sends at least if it takes part in anything: to meet the others takes more."""
SILENT_S = 10.0
"""Time without traffic after which a script that still runs is told so."""
_MEETING = "ranks meet at MASTER_ADDR and MASTER_PORT, which the script must take as they are"


class Scripts:
    """Applies to workload=script with two workers or more."""

    def __init__(self, spec: RunSpec) -> None:
        self._applies = spec.program == "script" and spec.workers > 1
        self._sent_bytes: dict[str, int] = {}
        self._nodes = [node.name for node in spec.topology.nodes]
        self._compressor = None if spec.program != "script" or spec.compressor.name == "none" else spec.compressor
        self._is_taken = False
        self._alone: dict[str, int] = {}
        """Ranks of the nodes whose script never joined a process group."""
        self._ended: set[str] = set()
        self._now_s = 0.0

    def add(self, event: Event) -> None:
        """Fold an event in."""
        kind = event["event"]
        if kind == "link" and not event["wan"] and event["from"] in self._nodes:
            self._sent_bytes[event["from"]] = event["wire_bytes"]
            self._now_s = max(self._now_s, event["t_s"])
        elif kind == "script_end":
            self._ended.add(event["node"])
            if not event["joined"]:
                self._alone[event["node"]] = event["rank"]
        elif kind == "hook" and self._compressor is not None:
            self._is_taken |= event["target"] == self._compressor.target

    def findings(self) -> Iterator[Finding]:
        """Yield what the script did not do."""
        has_ended = bool(self._ended)
        if self._applies and (has_ended or self._now_s >= SILENT_S):
            yield from self._network()
        if has_ended and self._compressor is not None and not self._is_taken:
            name = self._compressor.name
            yield False, f"compressor={name}: the script did not take it; ddp_hook() without a name does"

    def _network(self) -> Iterator[Finding]:
        silent = [node for node in self._nodes if self._sent_bytes.get(node, 0) < LEAST_BYTES]
        if silent == self._nodes and self._sent_bytes:
            joined = "; the script never joined a process group" if len(self._alone) == len(self._nodes) else ""
            yield True, f"no worker sent anything over the network{joined}: {_MEETING}"
            return
        if silent and self._sent_bytes:
            sent = format_size(sum(self._sent_bytes.values()))
            yield False, f"{', '.join(silent)} sent nothing over the network, the others {sent}: {_MEETING}"
        if self._alone:
            who = ", ".join(f"rank {rank} on {node}" for node, rank in self._alone.items())
            yield False, f"{who} never joined a process group (torch.distributed.init_process_group)"
