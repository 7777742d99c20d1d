from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from testbed.core.device.profile import Profile
from testbed.core.errors import InputError
from testbed.core.parameters import Count, CountOrZero, Size
from testbed.core.record.events.training import Cache, FrozenLayers
from testbed.core.units import parse_size_bytes
from testbed.worker.interfaces.transform import Transform, TransformContext
from testbed.worker.interfaces.workload import Workload
from testbed.worker.interfaces.workload_capabilities import varies_samples
from testbed.worker.methods.freezing.freeze_policy import FreezePolicy, FreezeShare, PolicyName, frozen_profile
from testbed.worker.model.activation_cache import ActivationCache
from testbed.worker.model.chain import Chain
from testbed.worker.model.layers import layer_names, layer_sizes


class Freeze(Transform):
    """Train all layers of pre-trained weights at first, and after each epoch fewer: a growing prefix stays as it is.

    He et al., "PipeTransformer: Automated Elastic Pipelining for Distributed Training of Transformers", ICML 2021,
    arXiv:2102.03161: its freeze algorithm and its cache, with any strategy and compressor; no pipeline. Frozen layers
    have no gradients: backward does not reach them, no bucket has room for them, and they are never sent. Layers are
    those of a `Chain` between embedding and readout; the embedding freezes with the first of them, the readout never.

    Differs from the released code: the optimizer's state of layers that go on learning is carried over, the policy that
    is given is the one that runs, and a process caches for itself alone. Compressors start again at each change.

    With `policy=grad_norm` the gradients are those that the optimizer takes; of all its steps in an epoch the squares
    are summed. The largest of any rank counts, found by an all-reduce of 8 bytes a layer once an epoch: a rank of a
    pipeline has gradients of its own stages alone.

    Args:
        policy: Rule by which layers freeze. schedule: a share per epoch; grad_norm: by the norms of their gradients;
            none: never.
        alpha: Largest share of active layers frozen per epoch.
        keep: Last layers that never freeze.
        epoch_steps: Optimizer steps between decisions; null: an epoch.
        cache: Memory of a rank for frozen layers' outputs. null: they are computed each time.
        cache_from: Frozen layers from which on the cache is used. Few layers may take no longer than their cache.

    Raises:
        ValueError: a parameter is not one of these.
    """

    keeps_parameters = True

    def __init__(
        self,
        *,
        policy: PolicyName = "schedule",
        alpha: FreezeShare = 1 / 3,
        keep: CountOrZero = 0,
        epoch_steps: Count | None = None,
        cache: Size | None = None,
        cache_from: Count = 1,
    ) -> None:
        self.policy, self.alpha, self.keep = policy, alpha, keep
        self.epoch_steps, self.cache_from = epoch_steps, cache_from
        self._cache = None if cache is None else ActivationCache(parse_size_bytes(cache))
        self._freezing: FreezePolicy | None = None
        self._chain: Chain | None = None
        """The model that learns now."""
        self._squares: dict[int, Tensor] = {}
        """Of gradients in this epoch, summed, by layer."""

    @property
    def adds_to_gradients(self) -> bool:
        return self.policy == "grad_norm"

    def misfits(self, workload: Workload) -> Iterator[str]:
        if self._cache is not None and varies_samples(workload):
            yield (
                f"cache={self._cache.capacity_bytes} B: the workload makes something else of a sample each time"
                " (augment), so that what was made of it before is of no use; leave out one of them"
            )

    def validate(self, steps: int) -> Iterator[str]:
        if self.epoch_steps is not None and self.epoch_steps >= steps and self.policy != "none":
            yield f"epoch_steps={self.epoch_steps}: the run has {steps} steps, so that nothing would ever be frozen"

    def begin(self, model: nn.Module, seed: int) -> None:
        """Check the layers of the model, which stays as it is.

        Raises:
            InputError: The model is no chain of layers, or has fewer of them than `keep`.
        """
        self._of(model)

    def bind(self, context: TransformContext) -> None:
        """Take over the run's context, and the number of steps of its epochs.

        Raises:
            InputError: The number of steps of an epoch is not known.
        """
        self._context = context
        self._freezing = self._of(context.model)
        self._every_steps = self.epoch_steps or context.epoch_steps or 0
        if not self._every_steps:
            raise InputError("transform.epoch_steps=null: the strategy has no epochs of its own; give a number")
        self._take(context.model)

    def example(self, model: nn.Module) -> None:
        _chain(model).freeze(self._of(model).most)

    def looks_after(self, step: int) -> bool:
        return (step + 1) % self._every_steps == 0 or step + 1 == self._context.steps

    def plan_after(self, model: nn.Module, step: int) -> int | None:
        """Return the number of layers that are frozen from now on; None: as many as before."""
        if not self.looks_after(step):
            return None
        policy, epoch = self._policy(), math.ceil((step + 1) / self._every_steps)
        self._note_cache(epoch)
        if step + 1 == self._context.steps:
            return None  # there is nothing left to gain
        before, norms = policy.frozen, self._norms() if policy.needs_norms else None
        frozen = policy.next(epoch, norms)
        if frozen == before:
            return None
        self._found = epoch, policy.layers, norms
        return frozen

    def switch(self, model: nn.Module, plan: int, step: int) -> FrozenLayers:
        before = _learning(model)
        chain = _chain(model)
        chain.freeze(plan)
        # replicas that nobody has averaged would differ for good
        self._context.comm.require_equal(_crc32(chain.prefix()), "the checksum of frozen parameters")
        self._take(chain)
        epoch, layers, norms = self._found
        return FrozenLayers(
            frozen=plan,
            parameters_before=before,
            parameters=_learning(model),
            epoch=epoch,
            layers=layers,
            gradient_norms=norms,
        )

    def profile_after(self, profile: Profile, model: nn.Module) -> Profile:
        return frozen_profile(profile, layer_sizes(model))

    def spared(self, batch: Any) -> Mapping[str, float]:
        chain, numbers = self._chain, getattr(batch, "numbers", None)
        if chain is None or chain.cache is None or numbers is None:
            return {}
        depths, share = chain.cache.depths(numbers), 1 / len(numbers)
        return {
            name: share * sum(depth > place for depth in depths)
            for place, piece in enumerate(chain.prefix())
            for name in _names_inside(chain, piece)
        }

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Watch gradients, if the policy depends on them."""
        if self.policy != "grad_norm":
            return
        layers = {id(p): place for place, layer in enumerate(_chain(model).layers) for p in layer.parameters()}

        def watch(stepping: torch.optim.Optimizer, *_: Any) -> None:
            for group in stepping.param_groups:
                for parameter in group["params"]:
                    place = layers.get(id(parameter))
                    if place is not None and parameter.grad is not None:
                        square = parameter.grad.detach().double().square().sum()
                        self._squares[place] = self._squares.get(place, torch.zeros(())) + square

        optimizer.register_step_pre_hook(watch)

    def _policy(self) -> FreezePolicy:
        assert self._freezing is not None, "it is bound"
        return self._freezing

    def _of(self, model: nn.Module) -> FreezePolicy:
        try:
            return FreezePolicy(self.policy, layers=len(_chain(model).layers), alpha=self.alpha, keep=self.keep)
        except ValueError as error:
            raise InputError(*(f"transform.{line}" for line in str(error).splitlines())) from error

    def _take(self, model: nn.Module) -> None:
        """Let the model that learns from now on use cached outputs."""
        self._chain = chain = _chain(model)
        chain.cache = self._cache if chain.frozen >= self.cache_from else None
        self._squares = {}

    def _norms(self) -> list[float]:
        """Return the 2-norm of each layer's gradients in this epoch, the largest of any rank; 0 for frozen layers."""
        told = torch.zeros(self._policy().layers, dtype=torch.float64)
        for place, square in self._squares.items():
            told[place] = square.sqrt()
        self._context.comm.all_reduce(told, op="max").wait()
        self._squares = {}
        norms: list[float] = told.tolist()
        return norms

    def _note_cache(self, epoch: int) -> None:
        if self._cache is not None and self._chain is not None and self._chain.cache is not None:
            counts = self._cache.take_counts()
            self._context.record(
                Cache(
                    epoch=epoch,
                    whole=counts.whole,
                    part=counts.part,
                    none=counts.none,
                    cached_samples=len(self._cache),
                    size_bytes=self._cache.size_bytes,
                )
            )


def _chain(model: nn.Module) -> Chain:
    if isinstance(model, Chain):
        return model
    raise InputError(
        "transform=freeze: the workload's model is no chain of layers whose first ones could be frozen; those of"
        " workloads tiny_vit and tiny_bert are"
    )


def _names_inside(model: nn.Module, piece: nn.Module) -> list[str]:
    inside = {id(module) for module in piece.modules()}
    return [name for name in layer_names(model) if id(model.get_submodule(name)) in inside]


def _learning(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def _crc32(pieces: list[nn.Module]) -> int:
    checksum = 0
    for piece in pieces:
        for parameter in piece.parameters():
            checksum = zlib.crc32(parameter.detach().contiguous().numpy().data, checksum)
    return checksum
