"""Our compressors in a user's own script: a communication hook for torch's DistributedDataParallel.

No `from __future__ import annotations` here: torch compares a hook's annotations with classes.
"""

import contextlib
import dataclasses
import importlib
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist  # noqa: TID251 - types, and whom the script has met; what is sent goes through communicator.py
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from compressors.adaptive import Adaptive
from compressors.base.compressor import Compressor
from compressors.base.feedback import with_feedback
from compressors.base.wrapper import Wrapper
from compressors.policy import Policy
from testbed.core.errors import InputError, RunError, raise_input_faults
from testbed.core.record.events.run import Hook, Payload
from testbed.core.spec.run_spec import Part
from testbed.core.spec.topology import Topology
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.shutdown import shut_down
from testbed.worker.device.clock import PhaseClock
from testbed.worker.plugins.factory import build
from testbed.worker.reduction.reducer import Reducer
from testbed.worker.script.model_buckets import ModelBuckets, owners
from testbed.worker.script.own_names import NAMES, ours
from testbed.worker.script.run_link import RunLink, run_link

CONF_DIR = Path(__file__).resolve().parents[3] / "experiments" / "conf" / "compressor"
CATALOGUE = Path(__file__).with_name("compressors.json")
"""Contents of those files in the wheel longhaul-compressors (scripts/make_wheel.py), which has no YAML."""
NO_LINKS = Topology(name="unknown", regions=(), nodes=(), links=())
"""Outside a run nothing is known of the network: payloads that cannot be summed are gathered."""


def ddp_hook(name: str | None = None, /, **params: Any) -> "CompressionHook":
    """Return a hook for `model.register_comm_hook(None, ddp_hook("topk", density=0.01))`.

    The model is torch's DistributedDataParallel over the default process group, with gloo, on CPUs.

    Args:
        name: of a file in experiments/conf/compressor; None takes the compressor of the run this process is in.
        params: in place of the defaults in that file. `_target_` names a class outside this tree.

    Raises:
        InputError: no such compressor, or parameters it refuses; all faults at once. Whether a hook can do what it asks
            for is known when the ranks have met, in the first backward.
        RunError: this process is in a run that does not answer.
    """
    link = run_link()
    return CompressionHook(_part(name, params, link), link)


class CompressionHook:
    """Averages DDP's buckets through a compressor, as strategies/ddp.py does with buckets of its own.

    A bucket's first exchange overlaps the rest of backward. Further ones, and decompression, follow once the last
    bucket has come, in one order on all ranks: DDP hands out buckets by their index, in the thread that runs backward.

    One hook serves several models: each has compressors of its own, found by its parameters.
    """

    def __init__(self, part: Part, link: RunLink | None = None) -> None:
        self._part, self._link = part, link
        self._seed = 0 if link is None else link.seed
        self._topology = NO_LINKS if link is None else link.topology
        self._first = self._new_compressor()  # a fault in the parameters is met here, not in the first backward
        self._comm: Communicator | None = None
        self._models: list[ModelBuckets] = []
        self._is_of_scripts = False
        self._elements = self._told_bytes = 0
        self.__name__ = self.__qualname__ = f"longhaul_{part.name}"  # torch's logger asks for both

    def _new_compressor(self) -> Compressor:
        with contextlib.suppress(Exception):  # a class of the script's is imported as the script would; else told below
            if self._part.target.partition(".")[0] not in NAMES:
                importlib.import_module(self._part.target.rpartition(".")[0])
        with ours():
            return with_feedback(build("compressor", self._part, Compressor))

    @property
    def payload_bytes(self) -> int:
        """Bytes that this rank has sent so far, counted as in our own strategies."""
        return 0 if self._comm is None else self._comm.payload_bytes

    def __call__(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
        parameters, flat = bucket.parameters(), bucket.buffer()
        model = self._model(state, bucket.index(), parameters)
        _require_float32(flat)
        self._elements += flat.numel()
        future = model.start(bucket.index(), parameters, flat, is_last=bucket.is_last())
        if bucket.is_last():
            self._tell(model.reducer.comm.rank)
        return future

    def _model(self, state: object, index: int, parameters: Sequence[Tensor]) -> ModelBuckets:
        """Return the model that a bucket is of.

        Raises:
            RunError: It is averaged over other ranks than all, or cannot be told from another model.
        """
        found = [one for one in self._models if one.parameters.issuperset(parameters)]
        if len(found) == 1:
            if self._is_of_scripts and not found[0].holds(index, parameters):  # perhaps it was wrapped anew
                _require_all_ranks(_model_of(parameters), state)
            return found[0]
        if found:
            raise RunError("ddp_hook: two models share the parameters of a bucket; give each model a hook of its own")
        if self._comm is not None and not self._is_of_scripts:  # joined by hand: DDP is not asked
            self._models = self._models or [self._new_model(self._comm, ())]
            self._models[0].parameters.update(parameters)
            return self._models[0]
        model = _model_of(parameters)
        _require_all_ranks(model, state)
        if self._comm is None:
            self._is_of_scripts = True
            self.join(_script_communicator())
        assert self._comm is not None
        self._models.append(self._new_model(self._comm, list(model.parameters())))
        return self._models[-1]

    def _new_model(self, comm: Communicator, parameters: Sequence[Tensor]) -> ModelBuckets:
        reducer = Reducer(self._new_compressor(), comm, PhaseClock(), self._topology, self._seed)
        return ModelBuckets(parameters, self._new_compressor, reducer)

    def join(self, comm: Communicator) -> None:
        """Reduce among the ranks of `comm`; all ranks do so at once.

        Raises:
            InputError: the compressor cannot sum so many ranks, or asks for what a hook does not see.
            CollectiveError: the ranks did not ask for the same.
        """
        raise_input_faults(f"compressor={self._part.name}: {fault}" for fault in self._faults(comm.world_size))
        settings = (self._part.target, sorted(self._part.params.items()), self._seed, self._topology.slowest_hop)
        comm.require_equal(zlib.crc32(repr(settings).encode()), f"what is asked of compressor {self._part.name}")
        shut_down()
        self._comm = comm
        if self._link is not None:
            params = {key: _recorded(value) for key, value in self._part.params.items()}
            told = Hook(rank=comm.rank, name=self._part.name, target=self._part.target, params=params)
            self._link.tell(told.to_json())

    def _faults(self, world_size: int) -> Iterator[str]:
        yield from self._first.validate(world_size)
        if self._first.traits.owns == "optimizer":
            yield "takes the optimizer's place, which a hook of DistributedDataParallel does not see; use strategy=ddp"
        if self._first.traits.owns == "momentum" and getattr(self._first, "momentum", None) is None:
            inner = self._first.inner if isinstance(self._first, Wrapper) else self._first
            way = "give it as momentum=0.9" if hasattr(inner, "momentum") else "use feedback=on, or strategy=ddp"
            yield (
                "takes the momentum out of the optimizer, which a hook of DistributedDataParallel does not see;"
                f" {way}, and give the optimizer none"
            )
        for rule in _named_rules(self._first):
            yield f"{rule} goes by names of parameters, which no hook of DistributedDataParallel sees; go by size"

    def _tell(self, rank: int) -> None:
        """Report one backward to the run, if there is one."""
        if self._link is not None:
            sent_bytes = self.payload_bytes - self._told_bytes
            self._link.tell(Payload(rank=rank, elements=self._elements, payload_bytes=sent_bytes).to_json())
        self._elements, self._told_bytes = 0, self.payload_bytes


def _named_rules(compressor: Compressor) -> Iterator[str]:
    """What in `compressor` goes by the names of parameters."""
    if isinstance(compressor, Wrapper):
        yield from _named_rules(compressor.inner)
    elif isinstance(compressor, Adaptive):
        for candidate in compressor.candidates:
            yield from _named_rules(candidate.compressor)
    elif isinstance(compressor, Policy):
        for rule in compressor.rules:
            if rule.names:
                yield f"{rule.key}.names={list(rule.names)}"
            yield from _named_rules(rule.compressor)


def _recorded(value: Any) -> Any:
    """Return a parameter as JSON has it."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return repr(value)


def _model_of(parameters: Sequence[Tensor]) -> DistributedDataParallel:
    """Return the model whose bucket this is.

    Raises:
        RunError: There is none, or several that differ in their parameters.
    """
    found = list(owners(parameters))
    if not found:
        raise RunError("ddp_hook: no DistributedDataParallel has the parameters of this bucket; it serves that alone")
    if any(set(one.parameters()) != set(found[0].parameters()) for one in found):
        raise RunError("ddp_hook: two models share the parameters of a bucket; give each model a hook of its own")
    return min(found, key=lambda one: dist.get_world_size(one.process_group))


def _require_all_ranks(model: DistributedDataParallel, state: object) -> None:
    """
    Raises:
        RunError: The model is averaged over some ranks only.
    """
    groups = [model.process_group, *([state] if isinstance(state, dist.ProcessGroup) else [])]
    for group in groups:
        if (size := dist.get_world_size(group)) != dist.get_world_size():
            raise RunError(
                f"ddp_hook averages over all {dist.get_world_size()} ranks of the default process group, and this"
                f" model's group has {size}: give DistributedDataParallel no process_group, or register no ddp_hook"
            )


def _part(name: str | None, params: dict[str, Any], link: RunLink | None) -> Part:
    catalogue = json.loads(CATALOGUE.read_text()) if CATALOGUE.is_file() else {}
    known = sorted(catalogue or (path.stem for path in CONF_DIR.glob("*.yaml")))
    if name is None:
        if link is None:
            raise InputError(f"compressor: in no run, so that none is given; name one of {', '.join(known)}")
        return dataclasses.replace(link.compressor, params={**link.compressor.params, **params})
    if name not in known and "_target_" not in params:
        raise InputError(f"compressor={name}: unknown; known: {', '.join(known) or f'none in {CONF_DIR}'}")
    settings = {**((catalogue.get(name) or _defaults(name)) if name in known else {}), **params}
    return Part(name, str(settings.pop("_target_")), settings)


def _defaults(name: str) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]  # here: the run's own compressor needs no file

    return dict(yaml.safe_load((CONF_DIR / f"{name}.yaml").read_text()))


def _script_communicator() -> Communicator:
    """Of the process group the script has made.

    Raises:
        RunError: it is not gloo's.
    """
    backend = dist.get_backend()
    if backend != "undefined" and "gloo" not in backend:  # "undefined": torch's choice, which is gloo for CPUs
        raise RunError(f"the process group is {backend}'s; ddp_hook needs dist.init_process_group('gloo')")
    options = dist.group.WORLD._get_backend(torch.device("cpu")).options  # type: ignore[union-attr]
    return Communicator(dist.get_rank(), dist.get_world_size(), options._timeout.total_seconds())


def _require_float32(flat: Tensor) -> None:
    if flat.dtype != torch.float32 or flat.device.type != "cpu" or flat.layout != torch.strided:
        found = f"{flat.dtype} on {flat.device}" if flat.layout == torch.strided else "sparse ones"
        raise RunError(f"ddp_hook reduces dense float32 gradients on CPUs, found {found}")
