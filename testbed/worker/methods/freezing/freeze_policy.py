"""How many layers of a model are frozen after each epoch: always a prefix, which never gets shorter.

He, Li, Soltanolkotabi and Avestimehr, "PipeTransformer: Automated Elastic Pipelining for Distributed Training of
Transformers", ICML 2021 (arXiv:2102.03161), section 3.1. The arithmetic is `worker.methods.pipeline.autopipe`'s.

| policy | frozen after epoch T, of L layers |
|---|---|
| none | 0 |
| schedule | ceil(L (1 - (1 - alpha)^T)), what the authors' released code does in all of its runs |
| grad_norm | min(f + ceil(alpha (L - f)), the active layer with the smallest gradient norm), of f frozen before |

The form of `grad_norm` is as we know it of the paper; its code has another one, which none of its runs uses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

from testbed.core.declaration import Declared
from testbed.core.device.codecs.work import CodecTimes
from testbed.core.device.profile import Profile
from testbed.core.kinds import Choice, Number
from testbed.core.parameters import Count, CountOrZero, raise_all, whole
from testbed.worker.methods.pipeline.autopipe import next_frozen, scheduled_frozen

POLICIES = ("none", "schedule", "grad_norm")


PolicyName = Annotated[str, Choice(POLICIES)]
FreezeShare = Annotated[float, Number(above=0, below=1)]


class FreezePolicy(Declared):
    """Asked once an epoch, in order.

    Args:
        layers: of the model that may be frozen, from the one that sees the inputs on.
        alpha: the most of what is active that freezes in one epoch.
        keep: so many last layers never freeze. The paper's rule ends with all of them frozen.

    Raises:
        ValueError: with a line for each parameter that is not one of these.
    """

    def __init__(self, policy: PolicyName, *, layers: Count, alpha: FreezeShare = 1 / 3, keep: CountOrZero = 0) -> None:
        raise_all(None if keep <= layers else f"keep={keep}: the model has {layers} layers; keep as many at most")
        self.policy, self.layers, self.alpha, self.keep = policy, layers, alpha, keep
        self.frozen = 0
        """So far."""

    @property
    def needs_norms(self) -> bool:
        """Whether it goes by gradients, and not by the epoch alone."""
        return self.policy == "grad_norm"

    @property
    def most(self) -> int:
        """Frozen in the end, however long the training."""
        return 0 if self.policy == "none" else self.layers - self.keep

    def next(self, epoch: int, gradient_norms: Sequence[float] | None = None) -> int:
        """Frozen after so many epochs.

        Args:
            epoch: that are over, counted from 1.
            gradient_norms: of all layers, over the epoch just over; only `grad_norm` looks at them, and at those of
                active layers alone.

        Raises:
            ValueError: norms are missing, of another number of layers or not finite.
        """
        raise_all(whole("epoch", epoch, 0))
        if self.policy == "schedule":
            found = scheduled_frozen(self.layers, self.alpha, epoch)
        elif self.policy == "grad_norm":
            norms = () if gradient_norms is None else gradient_norms
            raise_all(
                None
                if len(norms) == self.layers
                else f"gradient_norms: there are {len(norms)}, of {self.layers} layers; give one of each"
            )
            found = next_frozen(self.frozen, self.alpha, norms)
        else:
            found = 0
        self.frozen = max(self.frozen, min(found, self.most))
        return self.frozen


# Times of a model of which a part is frozen, from those of all of it and those with as much frozen as may be.


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
