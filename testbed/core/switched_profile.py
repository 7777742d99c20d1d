"""Times of a model that has changed, from those of the model that it was expected to become."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from testbed.core.profile import LayerTimes, Profile


def fitted(profile: Profile, parameters: Mapping[str, int]) -> Profile:
    """Of a model with these layers: those of `profile.switched` in proportion to their parameters, as the factors of a
    weight take it by their rank; those that did not change after all as before.

    Args:
        profile: with `switched`.
        parameters: elements of each layer of the model as it is, in order.

    Raises:
        ValueError: a layer is in neither.
    """
    expected = profile.switched
    if expected is None:
        raise ValueError("the profile has no times of a model that has changed")
    before, after = ({layer.name: layer for layer in one.layers} for one in (profile, expected))
    layers = tuple(_fitted(name, count, before, after) for name, count in parameters.items())
    total = sum(parameters.values()) / (sum(layer.parameters for layer in expected.layers) or 1)
    return dataclasses.replace(
        expected,
        layers=layers,
        forward_s=expected.forward_s + _sum("forward_s", layers) - _sum("forward_s", expected.layers),
        backward_s=expected.backward_s + _sum("backward_s", layers) - _sum("backward_s", expected.layers),
        optimizer_s=expected.optimizer_s * total,
    )


def _fitted(name: str, count: int, before: Mapping[str, LayerTimes], after: Mapping[str, LayerTimes]) -> LayerTimes:
    layer = after.get(name, before.get(name))
    if layer is None:
        raise ValueError(f"layer {name}: the profile has no times of it")
    ratio = count / layer.parameters if layer.parameters else 1.0
    return dataclasses.replace(
        layer,
        parameters=count,
        forward_s=layer.forward_s * ratio,
        backward_s=layer.backward_s * ratio,
        forward_flop=layer.forward_flop * ratio,
    )


def _sum(key: str, layers: tuple[LayerTimes, ...]) -> float:
    return float(sum(getattr(layer, key) for layer in layers))
