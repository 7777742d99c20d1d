"""Chrome traces that torch.profiler exports: operations on the host, and kernels with the times of their launches."""

from __future__ import annotations

import bisect
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError

_MAX_BYTES = 500_000_000
_EVALUATE = "autograd::engine::evaluate_function: "
_ACCUMULATE = "torch::autograd::AccumulateGrad"
_OPTIMIZER = "Optimizer.step#"
_HOST, _LAUNCHES, _DEVICE = (
    ("cpu_op", "user_annotation"),
    ("cuda_runtime", "cuda_driver"),
    ("kernel", "gpu_memcpy", "gpu_memset"),
)
_SENDING = ("nccl:", "gloo:", "mpi:", "c10d::")


@dataclass(frozen=True)
class Op:
    """One operation of the host. Times are seconds of the trace."""

    name: str
    begin_s: float
    end_s: float
    thread: object
    sequence: int | None
    """Number of the node of the graph that it makes or, in backward, is."""
    dims: tuple[Any, ...]
    """Shapes of its inputs; a list of tensors has a tuple of shapes."""
    inputs: tuple[str, ...]
    """Inputs that are numbers, as text; empty where they are tensors."""

    @property
    def is_backward(self) -> bool:
        return self.name.startswith(_EVALUATE)

    @property
    def is_gradient(self) -> bool:
        """True for the operation that adds a gradient to its parameter, within the engine's own."""
        return self.name == _ACCUMULATE

    @property
    def is_around_gradient(self) -> bool:
        return self.name == _EVALUATE + _ACCUMULATE

    @property
    def optimizer(self) -> str:
        """Name of the optimizer whose step it is; empty for all else."""
        return self.name.removeprefix(_OPTIMIZER).partition(".")[0] if self.name.startswith(_OPTIMIZER) else ""


class Trace:
    """Contents of a trace.

    Args:
        ops: Operations of the host, in the order of their begin.
        kernels: (launch, begin, end) in seconds, of all that ran on an accelerator.
        accelerator: Its name; empty if nothing ran on one.
    """

    def __init__(self, ops: Sequence[Op], kernels: Sequence[tuple[float, float, float]], accelerator: str) -> None:
        self.ops, self.accelerator = ops, accelerator
        self.kernels = sorted(kernels)
        self._launches = [launch_s for launch_s, _, _ in self.kernels]
        self._ends, latest_s = list[float](), 0.0
        for _, _, end_s in self.kernels:
            latest_s = max(latest_s, end_s)
            self._ends.append(latest_s)

    def reached_s(self, host_s: float) -> float:
        """Return when an event shows that the host records at `host_s`: once all launched before it has ended."""
        before = bisect.bisect_right(self._launches, host_s)
        return max(host_s, self._ends[before - 1]) if before else host_s

    def busy_s(self, begin_s: float, end_s: float) -> float:
        """Return the seconds between two times in which a kernel ran."""
        busy_s, until_s = 0.0, begin_s
        for _, first_s, last_s in sorted(self.kernels, key=lambda kernel: kernel[1]):
            busy_s += max(0.0, min(last_s, end_s) - max(first_s, until_s))
            until_s = max(until_s, last_s)
        return busy_s


def read_trace(path: Path) -> Trace:
    """Return the trace of a file, which may be compressed (.gz).

    Raises:
        InputError: The file cannot be read, is too large, or is no trace of one worker with shapes.
    """
    data = _json(path)
    events = data.get("traceEvents") if isinstance(data, Mapping) else None
    if not isinstance(events, list):
        raise InputError(f"{path}: is no trace; give what export_chrome_trace of torch.profiler wrote")
    if data.get("record_shapes") == 0:
        raise InputError(f"{path}: has no shapes; trace again with torch.profiler.profile(record_shapes=True)")
    try:
        whole = [event for event in events if isinstance(event, dict) and event.get("ph") == "X"]
        ops = sorted(_ops(whole), key=lambda op: (op.begin_s, -op.end_s))
        kernels = list(_kernels(whole))
        names = [str(one.get("name", "")) for one in data.get("deviceProperties") or ()]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: an event is not as torch.profiler writes it: {type(error).__name__}: {error}"
        ) from error
    if sending := next((op.name for op in ops if op.name.startswith(_SENDING)), None):
        raise InputError(
            f"{path}: holds communication ({sending}), which would count as computing; trace one worker without it"
        )
    return Trace(ops, kernels, (names[0] if names else "an unnamed accelerator") if kernels else "")


def _json(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"{path}: is no file; give the path of a trace")
    try:
        with path.open("rb") as file:
            is_compressed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if is_compressed else path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if len(content) > _MAX_BYTES:
        raise InputError(f"{path}: holds more than {_MAX_BYTES:,} bytes; trace fewer steps, five are enough")
    try:
        return json.loads(content, strict=False)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as JSON: {error}") from error


def _ops(events: Sequence[dict[str, Any]]) -> Iterator[Op]:
    for event in events:
        if event.get("cat") in _HOST:
            args = event.get("args", {})
            begin_s = 1e-6 * float(event["ts"])
            sequence = args.get("Sequence number")
            yield Op(
                name=str(event["name"]),
                begin_s=begin_s,
                end_s=begin_s + 1e-6 * float(event["dur"]),
                thread=event.get("tid"),
                sequence=int(sequence) if sequence is not None and int(sequence) >= 0 else None,
                dims=_tuples(args.get("Input Dims", ())),
                inputs=tuple(map(str, args.get("Concrete Inputs", ()))),
            )


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _kernels(events: Sequence[dict[str, Any]]) -> Iterator[tuple[float, float, float]]:
    """Yield (launch, begin, end); what has no launch in the trace was launched before it began, at the latest."""
    launches: dict[object, float] = {}
    for event in events:
        if event.get("cat") in _LAUNCHES and "correlation" in event.get("args", {}):
            launches[event["args"]["correlation"]] = 1e-6 * float(event["ts"])
    for event in events:
        if event.get("cat") in _DEVICE:
            begin_s = 1e-6 * float(event["ts"])
            launch_s = launches.get(event.get("args", {}).get("correlation"), begin_s)
            yield launch_s, begin_s, begin_s + 1e-6 * float(event["dur"])
