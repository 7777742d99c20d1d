"""How many layers of a model are frozen after each epoch: always a prefix, which never gets shorter.

He, Li, Soltanolkotabi and Avestimehr, "PipeTransformer: Automated Elastic Pipelining for Distributed Training of
Transformers", ICML 2021 (arXiv:2102.03161), section 3.1. The arithmetic is `core.parallel.autopipe`'s.

| policy | frozen after epoch T, of L layers |
|---|---|
| none | 0 |
| schedule | ceil(L (1 - (1 - alpha)^T)), what the authors' released code does in all of its runs |
| grad_norm | min(f + ceil(alpha (L - f)), the active layer with the smallest gradient norm), of f frozen before |

The form of `grad_norm` is as we know it of the paper; its code has another one, which none of its runs uses.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.core.parallel.autopipe import next_frozen, scheduled_frozen
from testbed.core.parameter_faults import choice, number, raise_all, whole

POLICIES = ("none", "schedule", "grad_norm")


def policy_faults(policy: object, alpha: object, keep: object) -> list[str | None]:
    """What is wrong with parameters of a `FreezePolicy` that hold for any model; None: nothing is."""
    return [
        choice("policy", policy, POLICIES),
        number("alpha", alpha, above=0, below=1),
        whole("keep", keep, 0),
    ]


class FreezePolicy:
    """Asked once an epoch, in order.

    Args:
        layers: of the model that may be frozen, from the one that sees the inputs on.
        alpha: the most of what is active that freezes in one epoch.
        keep: so many last layers never freeze. The paper's rule ends with all of them frozen.

    Raises:
        ValueError: with a line for each parameter that is not one of these.
    """

    def __init__(self, policy: str, *, layers: int, alpha: float = 1 / 3, keep: int = 0) -> None:
        raise_all(*policy_faults(policy, alpha, keep), whole("layers", layers, 1))
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
