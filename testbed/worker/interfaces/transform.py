"""Base class of transforms, which change the model while it is trained.

The loop rebuilds everything that depends on the model. The methods by which a transform changes it are capabilities, in
`testbed.worker.interfaces.transform_capabilities`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from testbed.core.declaration import Declared
from testbed.core.device.profile import LayerTimes, Profile
from testbed.core.record.events.base import StepEvent
from testbed.core.renaming import Renamed, tell_renamed
from testbed.worker.communication.communicator import Communicator
from testbed.worker.interfaces.workload import Workload

# Times of a model that has changed, from those of the model that it was expected to become.


def fitted(profile: Profile, parameters: Mapping[str, int]) -> Profile:
    """Return the times of a changed model, from those of the model that it was expected to become.

    Layers take the times of `profile.switched` in proportion to their parameters, as factors of a weight do by their
    rank. Layers that did not change after all take their former times.

    Args:
        profile: Times of the former model, with `switched`.
        parameters: Elements of each layer of the changed model, by name, in order.

    Raises:
        ValueError: A layer is in neither.
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


@dataclass(frozen=True, kw_only=True)
class TransformContext:
    """Everything that a transform may use, apart from the model that it is given."""

    model: nn.Module
    """Model with initial parameters, before anything has put hooks on it."""
    comm: Communicator
    steps: int
    """Steps of the whole run."""
    epoch_steps: int | None = None
    """Steps of one epoch of the data; None: the strategy has no epochs."""
    loss: Callable[[nn.Module], Tensor]
    """Function from a copy of the model to its loss on some batch."""
    record: Callable[[StepEvent], None] = lambda _: None
    """Function that puts an event into the record, after the step in which it is called. A rehearsal records
    nothing."""

    def waiting(self) -> AbstractContextManager[None]:
        """Return what stood around a wait for other ranks; waits book themselves."""
        tell_renamed("TransformContext", "waiting() is what every wait does by itself now")
        return self.comm.waiting()


class Transform(Renamed, Declared):
    """Base of all transforms, with the methods that each of them has.

    Constructors take keyword-only parameters and raise ValueError with a line for each bad one. `bind` comes once,
    before the strategy is bound.
    """

    renamed: ClassVar[Mapping[str, str]] = {"faults": "validate"}

    changes_the_model: ClassVar[bool] = True
    """True if it ever does."""
    changes_at_once: ClassVar[bool] = False
    """True if it does so before the run (`InitialChange`), and never again."""
    keeps_parameters: ClassVar[bool] = False
    """True if all parameters stay those of the workload's model, so that an optimizer continues with its state."""
    compresses_after: bool = True
    """True if the run's compressor is used for the changed model too; otherwise it is sent as it is."""

    @property
    def adds_to_gradients(self) -> bool:
        """True if it needs the workload's optimizer: it changes or observes gradients, or changes learning rates."""
        return False

    def validate(self, steps: int) -> Iterator[str]:
        """Yield a line for each thing that is wrong in a run of `steps` steps."""
        yield from ()

    def misfits(self, workload: Workload) -> Iterator[str]:
        """Yield a line for each reason why it does not work with `workload`."""
        yield from ()

    def bind(self, context: TransformContext) -> None:
        """Take the parts of this run. Collectives are allowed; all ranks bind at once."""
        return
