"""Rounds of `strategy=federated` as if each client had a device and a link of its own, from the record of a run that
has run them one after another: simulated, not measured.

A round is the server's encoding, its model to all clients at once, the decoding, training and encoding of each, their
updates back, the server's decoding of one after another, and what it makes of them. Of that the record has: seconds of
each client (event `federated_round`), bytes of a model and of an update, framing included, and what server and workers
have computed beside clients (events `step`). Messages are fluids of full frames: see
`testbed.analysis.composition.server_model`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.analysis.composition.links import SERVER, Star, star_of
from testbed.analysis.composition.server_model import Serving, round_s
from testbed.analysis.record.record import Record
from testbed.core.errors import InputError
from testbed.core.files import printable
from testbed.core.record.table_formats import aligned
from testbed.core.spec.link_profile import MTU_BYTES
from testbed.core.spec.paths import WIRE_RATIO
from testbed.core.units import format_rate, format_time

SCHEMA_VERSION = 1
SIMULATED, STRATEGY = "simulated", "federated"
Event = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Round:
    """Of one round what was measured; seconds are emulated."""

    number: int
    measured_s: float
    """Of the server, from the beginning of the round to the beginning of the next."""
    clients_s: Sequence[float]
    """Of each client that has come, what it took on its worker's device."""
    overheads_s: Sequence[float]
    """Of each, what its worker took beside: to decode the model and encode the update, once, and its part of all else
    that the worker did but train and wait."""
    workers_s: Sequence[float]
    """Of each worker, all that it did but wait."""
    model_bytes: float
    """Of one, framing included."""
    update_bytes: float
    """Likewise; the mean of workers'."""
    encode_s: float
    """Of the server, as what follows."""
    decode_s: float
    """Of one update."""
    fold_s: float
    """To make one update part of its model."""

    def composed_s(self, star: Star, goodput: float = 1.0) -> float:
        """With a device and a link for each client."""
        both = zip(self.clients_s, self.overheads_s, strict=True)
        return self._round_s([one + beside for one, beside in both], star, goodput)

    def as_made_s(self, star: Star, goodput: float = 1.0) -> float:
        """With the devices and links that there were: by how much this differs from `measured_s` is the arithmetic's
        error on the run itself."""
        return self._round_s(self.workers_s, star, goodput)

    def _round_s(self, compute_s: Sequence[float], star: Star, goodput: float) -> float:
        wire = WIRE_RATIO / goodput
        return round_s(
            compute_s,
            star.down,
            down_bytes=wire * self.model_bytes,
            up_bytes=wire * self.update_bytes,
            up_links=star.up,
            serving=Serving(before_s=self.encode_s, each_s=self.decode_s, after_s=self.fold_s * len(compute_s)),
        )


def rounds_of(record: Record) -> list[Round]:
    """All but the first, in which connections begin slowly, those in which a worker was lost, and those left out.

    Raises:
        InputError: it is no run of strategy=federated, or its record does not have what is needed.
    """
    name = None if record.spec is None else record.spec.strategy.name
    if name != STRATEGY:
        raise InputError(
            f"{record.run_id}: strategy={name} has no clients that run in sequence; give a run of {STRATEGY}"
        )
    told = record.of_kind("federated_round")
    if record.of_kind("secure_round"):
        raise InputError(
            f"{record.run_id}: has secure sums, whose messages depend on how many workers there are: with as many as"
            " clients they would be others; give a run without strategy.secure"
        )
    if any("elapsed_s" not in event for event in told):
        raise InputError(
            f"{record.run_id}: its events federated_round do not say what each client took: it was made by an older"
            " version; make it again"
        )
    steps = record.remaining_steps()
    found = [one for event in told if (one := _round(event, steps.get(event["step"], [])))]
    if not found:
        raise InputError(
            f"{record.run_id}: {len(told)} rounds are in the record, of which none can be composed: the first one is"
            " left out, and those in which a client that was asked did not come, as when it was cut; give a run of"
            " three steps or more, without deadlines and overselect"
        )
    return found


def _round(told: Event, steps: Sequence[Event]) -> Round | None:
    """None where it is not one to go by."""
    by_rank = {event["rank"]: event for event in steps}
    ran: dict[int, list[float]] = {}
    for rank, elapsed_s in zip(told["ranks"], told["elapsed_s"], strict=True):
        ran.setdefault(rank, []).append(elapsed_s)
    workers = [rank for rank in by_rank if rank != SERVER]
    if told["round"] == 0 or not ran or told["came"] != told["asked"] or not {SERVER, *ran} <= set(by_rank):
        return None
    server = by_rank[SERVER]
    beside = {rank: _beside_s(by_rank[rank], of_worker) for rank, of_worker in ran.items()}
    phase_s = server["phase_s"]
    folding_s = max(0.0, _own_s(server) - phase_s["compress"] - phase_s["decompress"])
    return Round(
        number=told["round"],
        measured_s=server["step_s"],
        clients_s=list(told["elapsed_s"]),
        overheads_s=[beside[rank] for rank in told["ranks"]],
        workers_s=[_own_s(by_rank[rank]) for rank in workers],
        model_bytes=server["payload_bytes"] / len(workers),
        update_bytes=statistics.fmean(by_rank[rank]["payload_bytes"] for rank in workers),
        encode_s=phase_s["compress"],
        decode_s=phase_s["decompress"] / len(workers),
        fold_s=folding_s / len(workers),
    )


def _own_s(step: Event) -> float:
    """All but waiting."""
    return max(0.0, float(step["step_s"] - step["phase_s"]["exposed_communication"]))


def _beside_s(step: Event, clients_s: Sequence[float]) -> float:
    """Of each client of a worker."""
    message_s = step["phase_s"]["compress"] + step["phase_s"]["decompress"]
    rest_s = max(0.0, _own_s(step) - sum(clients_s) - message_s)
    return float(message_s + rest_s / len(clients_s))


def composed(record: Record, star: Star, goodput: float = 1.0) -> dict[str, Any]:
    """All of it, as JSON.

    Args:
        goodput: the share of links' rates that messages get.

    Raises:
        InputError: as of `rounds_of`.
    """
    if not 0 < goodput <= 1:
        raise InputError(f"--goodput {goodput:g}: must be above 0, and 1 at most")
    found, summary = rounds_of(record), record.summary or {}
    rounds = [_told(one, star, _made(record), goodput) for one in found]
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": record.run_id,
        "kind": SIMULATED,
        "verdict": summary.get("verdict"),
        "links": star.to_json(),
        "goodput": goodput,
        "mean": {"kind": SIMULATED, **{key: _mean(rounds, key) for key in ("measured_s", "as_made_s", "composed_s")}},
        "rounds": rounds,
        "notes": list(_notes(record, summary, len(found))),
    }


def _made(record: Record) -> Star | None:
    """The star that the run was made on; None: its links are not those of one."""
    try:
        return None if record.spec is None else star_of(record.spec.topology)
    except InputError:
        return None


def _mean(rounds: Sequence[Mapping[str, Any]], key: str) -> float | None:
    values = [one[key] for one in rounds]
    return None if None in values else statistics.fmean(values)


def _told(one: Round, star: Star, made: Star | None, goodput: float) -> dict[str, Any]:
    return {
        "kind": SIMULATED,
        "round": one.number,
        "clients": len(one.clients_s),
        "workers": len(one.workers_s),
        "model_bytes": one.model_bytes,
        "update_bytes": one.update_bytes,
        "measured_s": one.measured_s,
        "as_made_s": None if made is None else one.as_made_s(made, goodput),
        "composed_s": one.composed_s(star, goodput),
    }


def _notes(record: Record, summary: Mapping[str, Any], rounds: int) -> Iterator[str]:
    if summary.get("verdict") != "valid":
        yield f"the run is {summary.get('verdict') or 'not finished'}: {'; '.join(summary.get('reasons') or ['-'])}"
    later = len([event for event in record.of_kind("federated_round") if event["round"] > 0])
    if rounds < later:
        yield (
            f"{later - rounds} of {later} rounds after the first are left out, in which a client that was asked did not"
            " come: where slow ones were cut, the mean is of the faster rounds"
        )
    spec = record.spec
    if spec is None:
        return
    if spec.tcp == "stock":
        yield "tcp=stock begins slowly after each pause, which is left out: messages take longer than composed"
    if any(profile.loss_ratio for link in spec.topology.links for _, _, profile in link.directions()):
        yield "links lose packets, which is left out: messages take longer than composed"
    if spec.topology.mtu_bytes != MTU_BYTES:
        yield f"frames have an MTU of {spec.topology.mtu_bytes}, and are taken as those of {MTU_BYTES}"
    if spec.events:
        yield "events have changed the network in mid-run, which is left out"


# Composed rounds as text.

_HEADINGS = ("kind", "round time", "measured", "reckoned as made", "composed")
_OF_ALL: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "shortest": min,
    "longest": max,
}


def text(found: dict[str, Any]) -> str:
    return "\n".join(printable(line) for line in _lines(found))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    rounds = found["rounds"]
    clients, workers = (_range([one[key] for one in rounds]) for key in ("clients", "workers"))
    yield f"{found['run_id']}: {len(rounds)} rounds of {clients} clients, which {workers} workers have run in sequence"
    links = found["links"]
    for way in ("down", "up"):
        rate, server, delay_s = (links[f"{way}_{key}"] for key in ("rate_bit_s", "server_rate_bit_s", "delay_s"))
        words = f"a client {format_rate(rate)}, the server {format_rate(server)}, {format_time(delay_s)} one way"
        yield f"composed with links {way}: {words}"
    yield ""
    yield from aligned([_HEADINGS, *(_row(found["kind"], name, rounds) for name in _OF_ALL)])
    yield ""
    yield "measured: of the run, its clients in sequence; reckoned as made: the same, by what composes the last column"
    yield from (f"warning: {note}" for note in found["notes"])


def _row(kind: str, name: str, rounds: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    def of_all(key: str) -> float:
        return _OF_ALL[name]([one[key] for one in rounds])

    measured_s, made = of_all("measured_s"), "-"
    if all(one["as_made_s"] is not None for one in rounds):
        made = f"{of_all('as_made_s'):.4g} s ({of_all('as_made_s') / measured_s - 1:+.1%})"
    return kind, name, f"{measured_s:.4g} s", made, f"{of_all('composed_s'):.4g} s"


def _range(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return str(most) if least == most else f"{least} to {most}"
