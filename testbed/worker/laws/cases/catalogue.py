"""Every compressor there is a configuration for, at its defaults, and any class besides."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from compressors.base.compressor import Compressor, Traits
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part
from testbed.worker.laws.cases.malformed import sound_payloads
from testbed.worker.laws.cases.registry import Case
from testbed.worker.plugins.compressor_catalogue import built, names, part
from testbed.worker.plugins.factory import build


def case(part: Part) -> Case:
    """Of a compressor that is told as a spec tells it; it has been built once and can be.

    Raises:
        InputError: with every fault of the class and its parameters.
    """
    traits = getattr(build("compressor", part, Compressor), "traits", None)
    if not isinstance(traits, Traits):
        found = "none" if traits is None else type(traits).__name__
        raise InputError(
            f"compressor={part.name}: {part.target} must have `traits`, a compressors.base.compressor.Traits: {found}"
        )

    def make(**params: object) -> Compressor:
        made: Compressor = built(part.target, {**part.params, **params})
        return made

    return Case(part.name, make, foreign=functools.partial(payloads, but=part.name), target=part.target)


def payloads(*, but: str = "") -> list[tuple[str, bytes]]:
    """Of ordinary gradients, by the name of the compressor in the catalogue that made it."""
    return [(name, payload) for name, payload in _all_payloads() if name != but]


@functools.cache
def _all_payloads() -> Sequence[tuple[str, bytes]]:
    found = []
    for name in names():
        codec = case(part(name)).make()
        if codec.traits.point_to_point:
            found.append((name, sound_payloads(codec)[0]))
    return found
