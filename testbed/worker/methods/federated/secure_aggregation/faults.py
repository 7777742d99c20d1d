"""What secure sums do not go with, told before anything is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from compressors.base.compressor import Compressor
from testbed.worker.methods.federated.aggregation.methods import Method
from testbed.worker.methods.federated.fleet import EQUAL
from testbed.worker.methods.federated.secure_aggregation.secure import Secure
from testbed.worker.methods.parameter_server.messages.plan import Plan
from testbed.worker.methods.parameter_server.messages.plan_request import asked_plan

_WHY = {
    "defence": "sees what each client sends, which no server does then",
    "attack": "is for defences, which secure sums rule out",
    "gate": "is of compression, and what is masked cannot be compressed",
    "selection": "goes by what single clients learn",
    "availability": "has clients' work thrown away after it was summed",
    "deadline_s": "has clients' work thrown away after it was summed",
    "overselect": "has clients' work thrown away after it was summed",
    "checkpoint": "would have a server go on whose masks are gone",
}
MASKED_UPLINK = "zstd"
"""The codec of what is left of an update: reports, and parameters without a change, which take no bytes by it."""


def clashes(secure: object, **given: object) -> Iterator[str]:
    """
    Args:
        given: of what does not go with secure sums, by its name, what is asked; None or False: it is not.
    """
    if secure is not None:
        yield from (f"secure, {name}: {_WHY[name]}; use one of them" for name, asked in given.items() if asked)


def masked_uplink(uplink: object) -> object:
    """Of what a user asks of the uplink, what holds of what is left of an update."""
    return {**(uplink or {}), "codec": MASKED_UPLINK} if isinstance(uplink, Mapping | None) else uplink


def secure_faults(
    secure: Secure,
    method: Method,
    compressor: Compressor,
    workers: int,
    *,
    participants: int,
    placement: str,
    up: object,
    down: object,
) -> Iterator[str]:
    """
    Args:
        participants, placement: of a round's clients; a worker without any hides nobody.
        up, down: as the user has asked for them.
    """
    yield from (f"secure.{fault}" for fault in secure.faults(workers))
    if participants < workers or placement != EQUAL:
        yield (
            f"secure: a sum hides a worker's clients among those of others, so each has to run some; use"
            f" strategy.placement={EQUAL} and strategy.participants={workers} or more"
        )
    if method.remembers:
        yield (
            f"secure, method={method.name}: clients keep something of updates that the server may never get, as of"
            " workers that drop out; use another method"
        )
    plans = [_plan(direction, asked, compressor) for direction, asked in (("up", up), ("down", down))]
    if plans[0] is not None and plans[0].coder is not None:
        yield f"uplink.codec: what is masked cannot be compressed; use codec={MASKED_UPLINK}, or compressor=none"
    if plans[1] is not None and plans[1].bounded:
        yield "downlink.codec: goes by bounds that follow from updates, which are hidden; use one without bounds"


def _plan(direction: str, asked: object, compressor: Compressor) -> Plan | None:
    """None: it is refused elsewhere."""
    given: Mapping[str, Any] = asked if isinstance(asked, Mapping) else {}
    try:
        return asked_plan(direction, given, compressor)
    except (ValueError, TypeError):
        return None
