"""A model as a chain of layers, as a device takes it: measured once, planned for on any links."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.core.parallelism.problem import FORWARD_SHARE, STEP_OF_FORWARD, LayerProfile, LinkMatrix
from testbed.core.parameters import number, raise_all, whole

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class MeasuredLayer:
    """One layer of the chain, without what ranks that share it send each other.

    Raises:
        ValueError: a number is out of its range; all of them, one a line.
    """

    name: str
    forward_s: Mapping[int, float]
    """A third of forward and backward of one sample, by the tensor-parallel degree: costs take three times this."""
    call_s: Mapping[int, float] = field(default_factory=dict)
    """A third of what forward and backward take besides, of however many samples; 0 where it is not named."""
    parameter_bytes: int
    """Of the whole layer."""
    activation_bytes: int
    """What it passes on, of one sample."""
    stored_bytes: int
    """What it keeps for backward, of one sample."""
    block: bool = True
    sums: int = 0
    """Over ranks that share it, in forward and backward together; the same for all degrees."""
    summed_bytes: int = 0
    """In all of these, of one sample."""
    forward_share: float = FORWARD_SHARE
    """Part of forward and backward together that is forward, on a device that says so."""

    def __post_init__(self) -> None:
        raise_all(
            whole(f"{self.name}: sums", self.sums, 0),
            whole(f"{self.name}: summed_bytes", self.summed_bytes, 0),
            *(number(f"{self.name}: call_s", time, least=0, below=math.inf) for time in self.call_s.values()),
        )
        self.on(None)

    def on(self, links: LinkMatrix | None) -> LayerProfile:
        """With what shared layers send, over the slowest links inside of regions; None: with tp=1 alone.

        A sum is two shots: each sends all others their parts, sums its own and sends it to all. That is two messages'
        latency and 2 (tp - 1) / tp of the bytes. A degree for which no region has ranks is left out.
        """
        inside = [] if links is None else list(_inside(links))
        most = 1 if links is None else max(map(len, links.members.values()))
        alpha_s = max((alpha for alpha, _ in inside), default=0.0)
        byte_s = 8 / min((rate for _, rate in inside), default=math.inf)
        degrees = [tp for tp in self.forward_s if tp <= most]

        def sample_s(tp: int) -> float:
            return self.forward_s[tp] + 2 * (tp - 1) / tp * self.summed_bytes * byte_s / STEP_OF_FORWARD

        def call_s(tp: int) -> float:
            return self.call_s.get(tp, 0.0) + (2 * self.sums * alpha_s / STEP_OF_FORWARD if tp > 1 else 0.0)

        return LayerProfile(
            self.name,
            {tp: sample_s(tp) for tp in degrees},
            self.parameter_bytes,
            self.activation_bytes,
            self.stored_bytes,
            self.block,
            {tp: call_s(tp) for tp in degrees},
            self.forward_share,
        )


@dataclass(frozen=True, kw_only=True)
class ModelProfile:
    """All layers, and what an optimizer keeps.

    Raises:
        ValueError: there is no layer.
    """

    layers: tuple[MeasuredLayer, ...]
    optimizer_states: int
    """Copies of the parameters."""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        raise_all(
            None if self.layers else "layers: there is none; give one or more",
            whole("optimizer_states", self.optimizer_states, 0),
        )

    def on(self, links: LinkMatrix) -> tuple[LayerProfile, ...]:
        return tuple(layer.on(links) for layer in self.layers)

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelProfile:
        """
        Raises:
            ValueError: it is none, or of another version.
        """
        if data.get("schema_version") != SCHEMA_VERSION:
            found = data.get("schema_version")
            raise ValueError(f"not a model's profile of version {SCHEMA_VERSION}, found {found}")
        try:
            return cls(
                layers=tuple(_layer(layer) for layer in data["layers"]),
                optimizer_states=data["optimizer_states"],
                provenance=data["provenance"],
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a model's profile: {type(error).__name__}: {error}") from error


def _layer(data: Mapping[str, Any]) -> MeasuredLayer:
    """JSON makes texts of degrees."""
    by_degree = {name: {int(tp): float(s) for tp, s in data[name].items()} for name in ("forward_s", "call_s")}
    return MeasuredLayer(**{**data, **by_degree})


def _inside(links: LinkMatrix) -> Iterator[tuple[float, float]]:
    """Latency and rate between two ranks of one region."""
    for members in links.members.values():
        for i, j in itertools.permutations(members, 2):
            yield links.alpha_s[i][j], links.rate_bit_s[i][j]
