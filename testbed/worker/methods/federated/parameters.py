"""What may be wrong with single parameters of a federated run, before any is put to use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from testbed.core.kinds import shown
from testbed.core.parameters import number, whole
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


def speed_faults(speeds: object) -> Iterator[str | None]:
    if speeds is None:
        return
    if isinstance(speeds, Sequence) and not isinstance(speeds, str):
        yield from (number(f"speeds[{i}]", one, above=0, most=1) for i, one in enumerate(speeds))
    else:
        yield f"speeds={shown(speeds)}: must be a number for each worker, or null"


def attack_faults(attack: Attack | None, attackers: int, clients: int) -> Iterator[str | None]:
    unknown = part_fault("attack", attack, Attack)
    yield unknown
    wrong = whole("attackers", attackers, 0, clients if isinstance(clients, int) else None)
    yield wrong
    if not wrong and bool(attackers) != (attack is not None):
        yield "attack, attackers: give both, or none"
    if attack is not None and not unknown and attack.colludes:
        told = type(attack).__name__
        yield f"attack={told}: goes by what several attackers have learnt, and clients lie one by one; use another"


def part_fault(name: str, given: object, kind: type) -> str | None:
    if given is None or isinstance(given, kind):
        return None
    return f"{name}={shown(given)}: must be a {kind.__name__}, given as {{_target_: …}}, or null"


def faults_of(make: Callable[[], object]) -> Iterator[str]:
    """What it refuses."""
    try:
        make()
    except ValueError as error:
        yield from str(error).splitlines()
