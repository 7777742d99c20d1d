"""Times of a model of which a part is frozen, from those of all of it and those with as much frozen as may be."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from testbed.core.profile import CodecTimes, Profile


def frozen_profile(profile: Profile, parameters: Mapping[str, int]) -> Profile:
    """Each layer's times from the one or the other, by whether it learns; the optimizer's in proportion to what does.

    Args:
        profile: with `switched`, in which all is frozen that ever may be.
        parameters: elements that learn of each layer of the model as it is.

    Raises:
        ValueError: there is no such profile, or it has other layers.
    """
    then = profile.switched
    if then is None or [layer.name for layer in then.layers] != [layer.name for layer in profile.layers]:
        raise ValueError("the profile has no times of the same layers frozen")
    layers = tuple(
        before if parameters.get(before.name) == before.parameters else after
        for before, after in zip(profile.layers, then.layers, strict=True)
    )
    learning, least, most = (sum(layer.parameters for layer in one) for one in (layers, then.layers, profile.layers))
    share = (learning - least) / (most - least) if most > least else 1.0
    forward_s, backward_s = (
        sum(getattr(layer, key) for layer in layers) - sum(getattr(layer, key) for layer in profile.layers)
        for key in ("forward_s", "backward_s")
    )
    return dataclasses.replace(
        profile,
        layers=layers,
        forward_s=profile.forward_s + forward_s,
        backward_s=max(0.0, profile.backward_s + backward_s),
        optimizer_s=then.optimizer_s + share * (profile.optimizer_s - then.optimizer_s),
        codec=tuple(
            sorted({bucket.elements: bucket for bucket in (*then.codec, *profile.codec)}.values(), key=_elements)
        ),
        switched=None,
    )


def _elements(bucket: CodecTimes) -> int:
    return bucket.elements
