"""Our compressors in a user's own script: a communication hook for torch's DistributedDataParallel.

No `from __future__ import annotations` here: torch compares a hook's annotations with classes.
"""

import dataclasses
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist  # noqa: TID251 - types, and whom the script has met; what is sent goes through communicator.py
from torch import Tensor

from compressors.adaptive import Adaptive
from compressors.base.compressor import Compressor, Layout
from compressors.base.feedback import with_feedback
from compressors.base.wrapper import Wrapper
from compressors.policy import Policy
from testbed.core.errors import InputError, RunError, raise_input_faults
from testbed.core.record.events.run import Payload
from testbed.core.spec.run_spec import Part
from testbed.core.spec.topology import Topology
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.shutdown import shut_down
from testbed.worker.device.clock import PhaseClock
from testbed.worker.plugins.factory import build
from testbed.worker.reduction.reducer import Reducer
from testbed.worker.script.run_link import RunLink, run_link

CONF_DIR = Path(__file__).resolve().parents[3] / "experiments" / "conf" / "compressor"
NO_LINKS = Topology(name="unknown", regions=(), nodes=(), links=())
"""Outside a run nothing is known of the network: payloads that cannot be summed are gathered."""


def ddp_hook(name: str | None = None, /, **params: Any) -> "CompressionHook":
    """A compressor for `model.register_comm_hook(None, ddp_hook("topk", density=0.01))`, `model` being torch's
    DistributedDataParallel over the default process group, with gloo, on CPUs.

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


@dataclass
class _Slot:
    """What is kept for the bucket of one index, as long as its parameters stay the same."""

    parameters: Sequence[Tensor]
    layout: Layout
    compressor: Compressor
    """One for each bucket: when DDP lays buckets anew, those before the first changed one are already under way."""

    def holds(self, parameters: Sequence[Tensor]) -> bool:
        return len(parameters) == len(self.parameters) and all(
            ours is theirs for ours, theirs in zip(self.parameters, parameters, strict=True)
        )


class CompressionHook:
    """Averages DDP's buckets through a compressor, as strategies/ddp.py does with buckets of its own.

    A bucket's first exchange overlaps the rest of backward. Further ones, and decompression, follow once the last
    bucket has come, in one order on all ranks: DDP hands out buckets by their index, in the thread that runs backward.

    DDP lays its buckets anew after the first backward. What a compressor keeps of a parameter then goes with it, by the
    rule of its `move_state`.
    """

    def __init__(self, part: Part, link: RunLink | None = None) -> None:
        self._part, self._link = part, link
        self._seed = 0 if link is None else link.seed
        self._topology = NO_LINKS if link is None else link.topology
        self._new_compressor: Callable[[], Compressor] = lambda: with_feedback(build("compressor", part, Compressor))
        self._first = self._new_compressor()  # a fault in the parameters is met here, not in the first backward
        self._reducer: Reducer | None = None
        self._slots: list[_Slot] = []
        self._names: dict[Tensor, str] = {}
        self._gone: list[_Slot] = []
        self._futures: list[tuple[torch.futures.Future[Tensor], Tensor]] = []
        self._step = 0
        self._elements = self._told_bytes = 0
        self.__name__ = self.__qualname__ = f"longhaul_{part.name}"  # torch's logger asks for both

    @property
    def payload_bytes(self) -> int:
        """What this rank has sent so far, counted as in our own strategies."""
        return 0 if self._reducer is None else self._reducer.comm.payload_bytes

    def __call__(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
        if self._reducer is None:
            self.join(_script_communicator())
        assert self._reducer is not None
        flat, slot = bucket.buffer(), self._slot(bucket.index(), bucket.parameters())
        self._reducer.comm.step = self._step + 1
        _require_float32(flat)
        self._reducer.compressor = slot.compressor
        self._reducer.start(flat, slot.layout, self._step)
        self._elements += flat.numel()
        future = torch.futures.Future[torch.Tensor]()
        self._futures.append((future, flat))
        if bucket.is_last():
            self._finish(self._reducer)
        return future

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
        self._reducer = Reducer(self._first, comm, PhaseClock(), self._topology, self._seed)

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

    def _slot(self, index: int, parameters: Sequence[Tensor]) -> _Slot:
        if index < len(self._slots) and self._slots[index].holds(parameters):
            return self._slots[index]
        if index < len(self._slots):
            # Buckets come in order, so that this is the first one that has changed: all from here on are laid anew.
            self._gone = self._slots[index:]
            del self._slots[index:]
        for parameter in parameters:
            self._names.setdefault(parameter, str(len(self._names)))
        layout = Layout(tuple(tuple(p.shape) for p in parameters), index, tuple(self._names[p] for p in parameters))
        slot = _Slot(parameters, layout, self._new_compressor())
        if self._gone:
            kept = _joined([gone.compressor.state_dict() for gone in self._gone])
            slot.compressor.load_state_dict(
                slot.compressor.move_state(kept, [gone.layout for gone in self._gone], [layout])
            )
        self._slots.append(slot)
        return slot

    def _finish(self, reducer: Reducer) -> None:
        reducer.finish()
        futures, self._futures, self._gone = self._futures, [], []
        for future, flat in futures:
            future.set_result(flat)
        self._step += 1
        if self._link is not None:
            sent_bytes = self.payload_bytes - self._told_bytes
            self._link.tell(
                Payload(rank=reducer.comm.rank, elements=self._elements, payload_bytes=sent_bytes).to_json()
            )
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


def _joined(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What several compressors keep, each of a bucket of its own, as one would keep it of all these buckets."""
    joined: dict[str, Any] = {}
    for state in states:
        for key, value in state.items():
            both = isinstance(value, dict) and isinstance(joined.get(key), dict)
            joined[key] = _joined([joined[key], value]) if both else value
    return joined


def _part(name: str | None, params: dict[str, Any], link: RunLink | None) -> Part:
    known = sorted(path.stem for path in CONF_DIR.glob("*.yaml"))
    if name is None:
        if link is None:
            raise InputError(f"compressor: in no run, so that none is given; name one of {', '.join(known)}")
        return dataclasses.replace(link.compressor, params={**link.compressor.params, **params})
    if name not in known and "_target_" not in params:
        raise InputError(f"compressor={name}: unknown; known: {', '.join(known) or f'none in {CONF_DIR}'}")
    settings = {**(_defaults(name) if name in known else {}), **params}
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
