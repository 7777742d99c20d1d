"""From what a user asks of a direction, and the run's compressor, to the plan of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from compressors.base.compressor import Compressor
from compressors.none import Uncompressed
from compressors.sz3 import SZ3
from testbed.worker.methods.parameter_server.bounds.error_bounds import RANGE
from testbed.worker.methods.parameter_server.bounds.rounds import BoundSchedule
from testbed.worker.methods.parameter_server.messages.plan import BOUNDED, CODECS, Plan
from testbed.worker.plugins import compressor_catalogue

_DEFAULT_BOUND = SZ3().error_bound
_RUNS_OWN = "compressor"
"""Of a direction's `codec`: that of the run."""
_AUTO = "auto"
"""Feedback where the compressor wants it, and of codecs that go by bounds; of what is sent up."""


def asked_plan(direction: str, given: Mapping[str, Any], compressor: Compressor) -> Plan:
    """How a direction of a strategy's parameters is to travel.

    Args:
        given: the user's settings of it.
        compressor: the run's.

    Raises:
        ValueError: with every fault, one a line.
    """
    asked = {"payload": "delta", "codec": _RUNS_OWN, "feedback": _AUTO} | dict(given)
    known = ("payload", "codec", "algorithm", "cutoff", "dither", "feedback", "importance", "lossless")
    if unknown := [name for name in asked if name not in known]:
        raise ValueError("\n".join(f"{name}: unknown; known: {', '.join(known)}" for name in unknown))
    codec = asked["codec"]
    if codec == _RUNS_OWN:
        codec = _codec_of(compressor)
        if isinstance(compressor, SZ3):
            asked.setdefault("algorithm", compressor.algorithm)
    elif isinstance(codec, str) and codec not in CODECS:
        codec = _named(codec)
    asked["codec"] = copy.deepcopy(codec)  # of each direction its own, since some keep a state
    if asked["feedback"] == _AUTO:
        keeps = codec.uses_feedback if isinstance(codec, Compressor) else codec in BOUNDED
        asked["feedback"] = keeps and direction == "up"
    if asked["feedback"] and isinstance(codec, Compressor) and codec.feedback_kind not in ("plain", "off"):
        raise ValueError(
            f"feedback: {type(codec).__name__} wants {codec.feedback_kind}, which goes with the optimizer's own steps"
        )
    return Plan(direction=direction, **asked)


def by_compressor(given: Mapping[str, Any]) -> bool:
    """Return True if a direction that a user asks for like this travels by the run's compressor."""
    return bool(given.get("codec", _RUNS_OWN) == _RUNS_OWN)


def asked_plans(
    asked: Mapping[str, Mapping[str, Any]], compressor: Compressor, schedule: BoundSchedule
) -> tuple[dict[str, Plan], list[str]]:
    """The plans of "up" and "down", of those with nothing against them; and what there is against the others."""
    plans, against = {}, []
    for direction, named in (("up", "uplink"), ("down", "downlink")):
        try:
            plans[direction] = asked_plan(direction, asked[direction], compressor)
        except (ValueError, TypeError) as error:
            instead = f"use another compressor, or strategy.{named} with another codec or payload"
            against += [f"strategy.{named}.{line}; {instead}" for line in str(error).splitlines()]
    if asked["up"].get("importance") is True and schedule.basis == RANGE:
        against.append(
            f"strategy.uplink.importance=True: bounds of {type(schedule).__name__} are shares of each tensor's range;"
            " use a schedule of basis=update"
        )
    return plans, against


def _named(name: str) -> Compressor:
    """The compressor of that name, as a user would get it."""
    if name not in compressor_catalogue.names():
        raise ValueError(
            f"codec={name}: unknown; known: {', '.join((_RUNS_OWN, *CODECS, *compressor_catalogue.names()))}"
        )
    part = compressor_catalogue.part(name)
    built: Compressor = compressor_catalogue.built(part.target, part.params)
    return built


def _codec_of(compressor: Compressor) -> str | Compressor:
    """The codec that the run's compressor stands for."""
    if isinstance(compressor, SZ3):
        if compressor.error_bound != _DEFAULT_BOUND or compressor.feedback != "auto":
            raise ValueError("codec=sz3: goes by strategy.bound, not by compressor.error_bound or compressor.feedback")
        return "sz3"
    return "raw" if isinstance(compressor, Uncompressed) else compressor
