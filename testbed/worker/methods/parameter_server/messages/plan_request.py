"""From what a user asks of a direction, and the run's compressor, to the plan of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from compressors.base.compressor import Compressor
from compressors.none import Uncompressed
from compressors.sz3 import ALGORITHMS, SZ3
from testbed.core.declaration import checked
from testbed.core.kinds import Choice, Kind, TrueOrFalse, Whole
from testbed.core.parameters import Flag
from testbed.worker.methods.parameter_server.bounds.error_bounds import RANGE
from testbed.worker.methods.parameter_server.bounds.rounds import BoundSchedule
from testbed.worker.methods.parameter_server.messages.plan import BOUNDED, CODECS, LOSSLESS, PAYLOADS, Plan
from testbed.worker.plugins import compressor_catalogue

_DEFAULT_BOUND = SZ3().error_bound
_RUNS_OWN = "compressor"
"""Of a direction's `codec`: that of the run."""
_AUTO = "auto"
"""Feedback where the compressor wants it, and of codecs that go by bounds; of what is sent up."""


@dataclass(frozen=True)
class _AskedCodec(Kind):
    """The run's own compressor, the server's codecs, and compressors by their names or made."""

    type_text = "choice, or a compressor, given as {_target_: …}"
    bases = (Compressor,)
    values_text = f"{_RUNS_OWN}, {', '.join(CODECS)}, or the name of a compressor"

    def faults(self, name: str, value: object, *, null: bool = False) -> Iterator[str]:
        if not isinstance(value, Compressor):
            yield from Choice([_RUNS_OWN, *CODECS, *compressor_catalogue.names()]).faults(name, value)


@dataclass(frozen=True)
class _AskedFeedback(TrueOrFalse):
    """Truth values, or auto."""

    values_text = f"or {_AUTO}"

    def allows(self, value: object) -> bool:
        return value == _AUTO or super().allows(value)

    def wanted(self, value: object) -> str:
        return f"must be true, false or {_AUTO}"


@checked
@dataclass(frozen=True, kw_only=True)
class Direction:
    """Settings of one direction, with the defaults that a user gets."""

    payload: Annotated[str, Choice(PAYLOADS["up"])] = "delta"
    """Form of parameters; params: values; delta: values less what the receiver has; grad: mean gradient, upwards alone.
    It is the mean of the round's batches. Other tensors travel as they are."""
    codec: Annotated[str | Compressor, _AskedCodec()] = _RUNS_OWN
    """Codec of large parameters; compressor: the run's. sz3 and int8_zstd follow bounds, zstd and raw lose nothing."""
    algorithm: Annotated[str, Choice(ALGORITHMS)] | None = None
    """Predictor of sz3; null: `compressor.algorithm`, else nopred."""
    cutoff: Annotated[int, Whole(0, unit="elements")] = 1024
    """Largest tensors that travel bit for bit."""
    dither: Flag = False
    """Random values make errors noise (sz3, int8_zstd). They are added before coding and subtracted after."""
    feedback: Annotated[bool | str, _AskedFeedback()] = _AUTO
    """Error feedback of updates, upwards alone. auto: where the compressor wants it, and with sz3 and int8_zstd."""
    importance: Flag = False
    """Tighter bounds for large gradients, upwards alone (sz3, int8_zstd)."""
    lossless: Annotated[str, Choice(LOSSLESS)] = "zstd"
    """Codec of everything that is not lossy; raw saves time."""


def asked_plan(direction: str, given: Mapping[str, Any], compressor: Compressor) -> Plan:
    """Return the plan by which a direction of a strategy's parameters is to travel.

    Args:
        given: Settings of it that the user gave.
        compressor: Compressor of the run.

    Raises:
        ValueError: A setting is wrong; every fault, one a line.
    """
    known = [one.name for one in fields(Direction)]
    if unknown := [name for name in given if name not in known]:
        raise ValueError("\n".join(f"{name}: unknown; known: {', '.join(known)}" for name in unknown))
    asked = vars(Direction(**given)).copy()
    if asked["algorithm"] is None:
        runs_own = asked["codec"] == _RUNS_OWN
        asked["algorithm"] = compressor.algorithm if runs_own and isinstance(compressor, SZ3) else "nopred"
    codec = asked["codec"]
    if codec == _RUNS_OWN:
        codec = _codec_of(compressor)
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
