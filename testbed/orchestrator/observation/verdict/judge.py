"""The verdict: may the numbers of this run be believed?

A judge folds the run's events, live as well as afterwards from the record, so that both say the same. Every rule has a
threshold above which the run is `suspect` and one above which it is `invalid`, and a reason in words. What is asked of
a link follows the schedule: figures are held against what was asked at their time, and those within a round trip and
a second of a change, or while a link is down, against nothing.

| rule | suspect | invalid |
| --- | --- | --- |
| WAN rate, idle, busy, in training, past two standard errors | 2% | 5% |
| WAN delay, one way and both: typical idle and busy, least in training; past jitter | 1 ms or 2% | 3 times |
| gaps between packets of a burst against its rate, 90th percentile | 100% | - |
| seconds with the shaper's p99 later than 2 ms or 2% of the delay | 5% | 25% |
| packets that the shaper lost against its target | - | 5 standard deviations |
| packets beyond the shaper's capacity, or dropped by the CPU backlog (softnet) | - | any |
| a measurement without a result; unreadable events | any | - |
| missing steps, results, measurements or counters | any | - |
| counters silent for 4 s, or probes of a link that is up for 8 s, wall-clock | any | - |
| a stopped process, by steps' longer time | 2% or unknown | 5% |
| steps above 5x the typical one; not with loss, jitter, background traffic | 2% | - |
| phases longer than the device takes, each step's latest rank | 2% | 5% |
| messages waiting for a core, mean over ranks | 10% | 30% |
| cores idle on average in training | below 10% | below 2% |
| time with a process waiting for a core (pressure); not paced | 50% | 85% |
| seconds with idle below 10% or pressure above 50%, from 2 s; not paced | 10% | - |
| seconds with pressure above 85%; not paced | - | 25% |
| a node stopped by its cgroup's quota | 1% | 10% |
| CPU steal in training, of a core; not paced | 2% | 10% |
| CPU steal in training, of a core; paced | 10% | 30% |
| wire bytes of all workers over payload | - | below 0.98 |
| bytes stored at the rendezvous in training, all nodes | - | 64 KiB |
| malformed or oversized requests at the rendezvous | any | - |
| an interface in a node that is not emulated | - | any |
| ranks that ended with different parameters | - | any |
| a rank that began late; not paced | 50 ms | 0.5 s |
| a worker lost without an event, others continued | any | - |
| a worker that sent more messages than the record takes | any | - |
| a script of which no worker sent 500 bytes over the links | - | any |
| a script's worker that sent nothing, or joined no process group | any | - |
| a script's compressor that no hook took | any | - |
| timing error of the collector | 1 s | - |

Not judged: drops of a link's own queue (`drops` of `link` events), since a full queue drops on a real link too; rounds
of receiving that ended early (`softnet_squeezed`), which delay packets by what lateness and probes show; gaps between
packets in training, which nobody records: those of the bursts before it are judged.

A run is paced where the virtual clock tells how late its phases were: then that, and not that somebody waited for a
core, says whether cores were short, since work that ends early only sleeps.

What could not be known (`unknowns`) changes no grade and stands beside the reasons, but for what the record lacks.

Steps that other machines or foreign processes spoiled are left out, a tenth at most, and so are the seconds of which no
step remains: of lateness, messages, cores, steal, late seconds of delay lines, round trips and rates in training. All
counts (losses, bytes, backlogs, quotas) are of the whole run ([decision
0047](decisions/0047-steps-that-are-left-out.md)).
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.core.errors import BROKEN
from testbed.core.record.spoiled_steps import LeftOut, SpoiledSteps
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.observation.verdict.evidence_rules import Evidence, is_plausible
from testbed.orchestrator.observation.verdict.lateness_rules import Lateness
from testbed.orchestrator.observation.verdict.link_rules import DelayLines, Event, Finding, Rates, RoundTrips
from testbed.orchestrator.observation.verdict.machine_rules import (
    IDLE_INVALID,
    MIN_WATCHED_S,
    Backlogs,
    Bypass,
    Cores,
    Ranks,
)
from testbed.orchestrator.observation.verdict.member_rules import Departures, Floods
from testbed.orchestrator.observation.verdict.reference import LinkReference
from testbed.orchestrator.observation.verdict.script_rules import Scripts
from testbed.orchestrator.observation.verdict.stall_rules import Stalls
from testbed.orchestrator.observation.verdict.unknowns import Unknowns

_IN_ROUNDS = ("federated", "fedbuff")
"""Strategies whose steps last as long as their slowest client, or wait for clients that are away."""
_NOT_OBSERVED = (
    "what the network between the machines does (nothing of it was asked or observed)",
    "whether the machines' cores were idle enough (nobody watched them)",
)

MIN_SLOWDOWN = 1.2
CLUSTER = "cluster"
"""What a run under `torchrun` is scheduled as, in its first event."""


class Judge:
    """Folds events; `verdict()` at any time."""

    def __init__(self, spec: RunSpec) -> None:
        self.kind = "emulated"
        """Or `measured`: on machines that are there, of which nothing was asked that could be held against it."""
        self._asked = LinkReference(spec.topology)
        self._rates = Rates(self._asked)
        self._round_trips = RoundTrips(self._asked)
        self._delay_lines = DelayLines(self._asked)
        self._cores = Cores()
        self._backlogs = Backlogs()
        self._unknowns = Unknowns()
        self._bypass = Bypass({node.name for node in spec.topology.nodes})
        self._ranks = Ranks()
        self._lateness = Lateness()
        self._departures = Departures()
        self._floods = Floods()
        self._scripts = Scripts(spec)
        self._spoiled = SpoiledSteps()
        self._evidence = Evidence(spec)
        self._stalls = Stalls(has_steps=spec.program == "training", is_steady=_is_steady(spec))
        self._rules = (
            *(self._evidence, self._stalls),
            *(self._rates, self._round_trips, self._delay_lines),
            *(self._cores, self._backlogs, self._bypass, self._ranks),
            *(self._lateness, self._departures, self._floods, self._scripts, self._unknowns, self._spoiled),
        )
        self._nothing: dict[str, None] = {}
        """Measurements that gave nothing, in words."""
        self._unread = 0
        self._ended = False
        self._is_closed = False

    def close(self, dilation: float) -> None:
        """No more events come: from now on what the record lacks is a reason.

        Args:
            dilation: Dilation that the run had in the end.
        """
        self._is_closed, self._evidence.dilation = True, dilation

    def add(self, event: Event) -> None:
        """Fold an event in. One that cannot be read is a reason, not an end: the record must be sealed all the same."""
        try:
            self._fold(event)
        except BROKEN:
            self._unread += 1

    def _fold(self, event: Event) -> None:
        kind = event["event"]
        if not is_plausible(event):
            raise ValueError(kind)
        if kind == "change":
            self._asked.change(event)
        elif kind == "schedule" and event["what"] == CLUSTER:
            self.kind = "measured"
        elif kind == "schedule" and event["what"] == "end":
            self._ended = True
        elif kind == "measurement" and event["name"] in self._asked.links:
            for key, what in (("rate_bit_s", "rate"), ("rtt_s", "round trip")):
                if event[key] is None:
                    text = f"link {event['name']} from {event['from']}: no {what} measured ({event['stage']})"
                    self._nothing[text] = None
        for rule in self._rules:
            rule.add(event)

    def training_rate_bit_s(self, name: str, source: str, target: str) -> float | None:
        """Rate at which a link's full queue emptied while training; None if it was not full for long enough."""
        return self._rates.training_rate_bit_s(name, source, target, self.left_out())

    def loss_ratio(self, name: str, source: str, _target: str) -> float | None:
        """Return the share of packets that the shaper dropped; None for a link without one.

        It is None too where an event changed the loss: the share is then of several targets.
        """
        is_of_several = self._asked.has_changed(name, source, "loss_ratio")
        return None if is_of_several else self._delay_lines.loss_ratio(name, source)

    def left_out(self) -> LeftOut:
        """Return the steps that the verdict leaves out; none on machines of which nobody watched the cores."""
        return self._spoiled.left_out()

    def verdict(self) -> tuple[str, list[str]]:
        """("valid" | "suspect" | "invalid", reasons), the gravest first."""
        invalid: list[str] = []
        suspect: list[str] = []
        for grave, reason in self._findings():
            (invalid if grave else suspect).append(reason)
        return ("invalid" if invalid else "suspect" if suspect else "valid"), invalid + suspect

    @property
    def needed_slowdown(self) -> float:
        """How many times as slow a run of the same has to be for these cores, where this one was `invalid` since its
        workers, their messages or its delay lines were late, or since no core was ever idle; else 1.

        Cores tell no number, so theirs is the least that is worth another run: assumed (decision 0014).
        """
        left_out = self.left_out()
        late = self._lateness.needed_slowdown(left_out) if self._lateness.is_invalid(left_out) else 1.0
        starved = self._cores.idle_ratio(left_out) < IDLE_INVALID
        slowdown = max(late, self._delay_lines.needed_slowdown(left_out))
        return max(slowdown, MIN_SLOWDOWN if starved or late > 1 else 1.0)

    def unknowns(self) -> list[str]:
        """What the verdict does not rest on, in words."""
        lacking = self._evidence.missing(is_emulated=self.kind == "emulated") if self._is_closed else ()
        return [*self._unknowns.texts(), *(_NOT_OBSERVED if self.kind == "measured" else ()), *lacking]

    def _findings(self) -> Iterator[Finding]:
        left_out, is_paced = self.left_out(), self._lateness.is_known
        of_workers = (
            self._lateness.findings(left_out),
            self._ranks.findings(is_paced=is_paced),
            self._departures.findings(),
            self._floods.findings(),
        )
        of_emulation = (
            *(self._rates.findings(left_out), self._round_trips.findings(left_out)),
            *(self._delay_lines.findings(left_out), self._cores.findings(is_paced=is_paced, left_out=left_out)),
            *(self._backlogs.findings(), self._bypass.findings(self._ended)),
            *(self._scripts.findings(), self._stalls.findings(left_out), self._unknown()),
        )
        for findings in (*of_workers, *(of_emulation if self.kind == "emulated" else ()), self._not_recorded()):
            try:
                yield from findings
            except BROKEN as error:
                yield False, f"a rule cannot be applied to this record: {type(error).__name__}: {error}"

    def _unknown(self) -> Iterator[Finding]:
        for text in self._nothing:
            yield False, text
        if self._ended and not self._cores.watched_s:
            yield False, "the cores were not observed during training"
        if self._ended and self._cores.watched_s >= MIN_WATCHED_S:
            for name in self._asked.links.keys() - self._round_trips.heard:
                yield False, f"link {name}: no probe came back during training"

    def _not_recorded(self) -> Iterator[Finding]:
        if self._is_closed:
            yield from self._evidence.findings(is_emulated=self.kind == "emulated")
        if self._unread:
            yield False, f"{self._unread} events of the record could not be read"


def _lasts_unlike(spec: RunSpec) -> bool:
    """Return whether the strategy makes some steps longer than others that send as much.

    A step that waits for an exchange which an earlier one began, one that inverts factors, a round of unlike clients.
    """
    params = spec.strategy.params
    inverts_rarely = params.get("inverse_every", 1) != params.get("factor_every", 1)
    return bool(params.get("overlap_steps")) or inverts_rarely or spec.strategy.name in _IN_ROUNDS


def _is_steady(spec: RunSpec) -> bool:
    """Return whether steps that send as much take as long, as far as is known beforehand."""
    if _lasts_unlike(spec):
        return False
    profiles = (profile for link in spec.topology.wan_links for _, _, profile in link.directions())
    return not spec.background and not any(profile.loss_ratio or profile.jitter_s for profile in profiles)
