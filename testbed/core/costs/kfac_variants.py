"""Ways of distributing K-FAC, and the plan that each makes of a model: who inverts what, and what travels together.

| variant | factors go to | while | inverted by | what comes back | papers |
|---|---|---|---|---|---|
| d   | all    | after backward | every worker                  | nothing                 | the plain way |
| mpd | all    | after backward | round robin                   | inverses                | Osawa et al., CVPR 2019 |
| spd | all    | they are computed | by load, small ones by all | inverses of large ones  | Shi et al., ICDCS 2021 |
| pad | owners | they are computed | blocks of neighbours       | inverses, or gradients  | Zhang, HKUST, 2023 |
| dp  | nobody | -              | layers by load                | preconditioned gradients | Zhang et al., TCC 2022 |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.core.costs.fusion import BY_TIMES, Cost
from testbed.core.costs.kfac_plan import balanced, blocks, by_load, groups, groups_by_size, round_robin
from testbed.core.device.factored_layer import CHOLESKY, Factor
from testbed.core.units import parse_size_bytes

FUSIONS = ("one", "layers", "size", BY_TIMES)
INVERSES, GRADIENTS, NOTHING = "inverses", "gradients", "nothing"


@dataclass(frozen=True)
class Variant:
    """One way. `dp` alone changes what is computed: an owner knows only the factors of its own samples."""

    factors_to: str
    """Whom the mean of a factor reaches: "all", its "owner", or "nobody": each worker goes by its own samples."""
    pipelined: bool
    """Whether factors travel while forward and backward go on."""
    results: tuple[str, ...]
    """What owners may send back; the first unless something else is asked for."""


VARIANTS = {
    "d": Variant("all", pipelined=False, results=(NOTHING,)),
    "mpd": Variant("all", pipelined=False, results=(INVERSES,)),
    "spd": Variant("all", pipelined=True, results=(INVERSES,)),
    "pad": Variant("owner", pipelined=True, results=(INVERSES, GRADIENTS)),
    "dp": Variant("nobody", pipelined=False, results=(GRADIENTS,)),
}


DEFAULTS: dict[str, Any] = {
    "variant": "spd",
    "results": None,
    "inverse": CHOLESKY,
    "factor_every": 1,
    "inverse_every": 1,
    "factor_fusion": None,
    "factor_group_size": "25 MiB",
    "accumulate": 1,
    "collective": "gloo",
}
"""Of those parameters of class KFAC that a plan depends on."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Parameters of a K-FAC strategy, with what follows from its variant in the place of those that are null."""

    variant: str
    results: str
    form: str
    """Of inverses."""
    factor_every: int
    inverse_every: int
    fusion: str
    group_bytes: int
    micro_batches: int
    collective: str

    @property
    def averages_traces(self) -> bool:
        """How damping is split goes by the traces of both factors of a layer, of which an owner has one."""
        apart = VARIANTS[self.variant].factors_to == "owner" and self.results == INVERSES
        return apart and self.form == CHOLESKY

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Settings:
        """
        Args:
            params: of a strategy of class KFAC; `testbed.worker.strategies.kfac` says what they are.
        """
        params = {**DEFAULTS, **params}
        variant = VARIANTS[params["variant"]]
        return cls(
            variant=params["variant"],
            results=params["results"] or variant.results[0],
            form=params["inverse"],
            factor_every=params["factor_every"],
            inverse_every=params["inverse_every"],
            fusion=params["factor_fusion"] or (BY_TIMES if variant.pipelined else "one"),
            group_bytes=parse_size_bytes(params["factor_group_size"]),
            micro_batches=params["accumulate"],
            collective=params["collective"],
        )


@dataclass(frozen=True)
class Costs:
    """What a plan goes by, in seconds."""

    invert_s: Callable[[Factor], float]
    broadcast_s: Callable[[Factor], float]
    """Of its inverse, from one worker to all."""
    reduction: Cost
    """Of a sum of factors, to all or to one."""


@dataclass(frozen=True)
class Plan:
    factors: tuple[Factor, ...]
    """In the order in which they are there: inputs' as forward goes, outputs' as backward does."""
    owners: tuple[int | None, ...]
    """Who inverts each; None: every worker does."""
    groups: tuple[tuple[int, ...], ...]
    """Indices of factors that are reduced together, in order; none where factors stay where they are."""

    @property
    def layer_owners(self) -> dict[str, int]:
        """Who preconditions each layer, where gradients come back: both its factors have one owner."""
        return {f.layer: owner for f, owner in zip(self.factors, self.owners, strict=True) if owner is not None}

    def owned(self, rank: int) -> list[int]:
        """What `rank` inverts for others too."""
        return [index for index, owner in enumerate(self.owners) if owner == rank]

    @property
    def everyones(self) -> list[int]:
        return [index for index, owner in enumerate(self.owners) if owner is None]


def make_plan(settings: Settings, factors: Sequence[Factor], workers: int, costs: Costs) -> Plan:
    """
    Args:
        factors: in the order in which they are there. Those of different workers never travel together.
    """
    owners = _owners(settings, factors, workers, costs)
    to = VARIANTS[settings.variant].factors_to
    if to == "nobody":
        return Plan(tuple(factors), owners, ())
    kept = owners if to == "owner" else None
    if settings.fusion == BY_TIMES:
        found = groups(factors, costs.reduction, kept)
    else:
        whole = 4 * sum(factor.elements for factor in factors)
        size_bytes = {"one": whole, "layers": 1, "size": settings.group_bytes}[settings.fusion]
        found = groups_by_size(factors, size_bytes, kept)
    return Plan(tuple(factors), owners, tuple(map(tuple, found)))


def _owners(settings: Settings, factors: Sequence[Factor], workers: int, costs: Costs) -> tuple[int | None, ...]:
    variant, results = settings.variant, settings.results
    if variant == "d":
        return (None,) * len(factors)
    if variant == "mpd":
        return tuple(round_robin(len(factors), workers))
    if variant == "spd":
        return tuple(balanced(factors, workers, costs.invert_s, costs.broadcast_s))
    # A chain to an owner begins at the rank before it. Taken from the last rank down, each chain begins at a rank that
    # the one before it has done with first; upwards it would begin at the rank that is done last.
    if variant == "pad" and results == INVERSES:
        return tuple(workers - 1 - block for block in blocks([factor.dimension for factor in factors], workers))
    # by layer: backward's order is that in which a layer's second factor is there
    layers = [factor.layer for factor in factors if factor.side == "g"]
    weights = [sum(factor.dimension for factor in factors if factor.layer == layer) for layer in layers]
    if variant == "pad":
        place = [workers - 1 - block for block in blocks(weights, workers)]
    else:
        place = by_load(weights, workers)
    owner_of = dict(zip(layers, place, strict=True))
    return tuple(owner_of[factor.layer] for factor in factors)
