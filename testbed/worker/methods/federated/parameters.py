"""What may be wrong with single parameters of a federated run, before any is put to use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

from testbed.core.kinds import ListOf, Number, shown
from testbed.core.parameters import whole
from testbed.worker.methods.federated.aggregation.attacks import Attack


def travel_faults(given: Mapping[str, object]) -> Iterator[str]:
    for direction, asked in given.items():
        if not isinstance(asked, Mapping):
            continue
        payload = asked.get("payload", "delta")
        if payload != "delta":
            told = shown(payload)
            yield f"{direction}.payload={told}: must be delta; what clients have changed is what rules go by"
        if asked.get("importance") is True:
            yield f"{direction}.importance=True: is by gradients, of which clients here keep none; leave it out"


Speeds = Annotated[Sequence[float], ListOf(Number(above=0, most=1), "a number for each worker")]


def attack_faults(attack: Attack | None, attackers: int, clients: int) -> Iterator[str | None]:
    yield whole("attackers", attackers, 0, clients)
    if attackers <= clients and bool(attackers) != (attack is not None):
        yield "attack, attackers: give both, or none"
    if attack is not None and attack.colludes:
        told = type(attack).__name__
        yield f"attack={told}: goes by what several attackers have learnt, and clients lie one by one; use another"


def faults_of(make: Callable[[], object]) -> Iterator[str]:
    """What it refuses."""
    try:
        make()
    except ValueError as error:
        yield from str(error).splitlines()
