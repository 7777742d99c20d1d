"""FLOPs of forward from the shapes in a trace: matrix products, convolutions, recurrent layers and attention."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from testbed.orchestrator.cli.traces.trace_file import Op


def counted(ops: Sequence[Op]) -> Iterator[tuple[Op, float]]:
    """Yield the operations that are counted, with two for each multiply-add; none within another one."""
    end_s = float("-inf")
    for op in ops:
        count = _COUNTS.get(op.name) or (_attention if _is_attention(op.name) else None)
        if count is None or op.begin_s < end_s:
            continue
        try:
            flop = count(op.dims, op.inputs)
        except (IndexError, TypeError, ValueError):  # an operation without the shapes that it has in other traces
            flop = 0.0
        if flop:
            end_s = op.end_s
            yield op, flop


def _product(left: int, right: int) -> Callable[[Any, Any], float]:
    """Matrices of which the last size of the left one is summed over."""
    return lambda dims, _: float(2 * math.prod(dims[left]) * dims[right][-1])


def _convolution(dims: Any, inputs: Any) -> float:
    """Return 0 where a trace of an old version does not hold strides."""
    (_, _, *image), weight = dims[0], dims[1]
    if len(inputs) < 7 or not inputs[3].startswith("["):
        return 0.0
    strides, paddings, dilations = (_each(inputs[at], len(image)) for at in (3, 4, 5))
    if inputs[6] in ("True", "1"):  # transposed: each value of the input meets the whole kernel
        return float(2 * dims[0][0] * math.prod(image) * math.prod(weight))
    places = [
        (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        for size, kernel, stride, padding, dilation in zip(image, weight[2:], strides, paddings, dilations, strict=True)
    ]
    return float(2 * dims[0][0] * math.prod(places) * math.prod(weight))


def _each(text: str, count: int) -> list[int]:
    numbers = [int(number) for number in json.loads(text)]
    return numbers * count if len(numbers) == 1 else numbers


def _recurrent(dims: Any, _: Any) -> float:
    """Input and four weights, or fewer: each matrix of gates meets each sample at each place."""
    places = math.prod(dims[0][:-1])
    return float(2 * places * sum(math.prod(shape) for shape in dims[1:3] if len(shape) == 2))


def _is_attention(name: str) -> bool:
    return name.startswith("aten::_scaled_dot_product_") and "math" not in name


def _attention(dims: Any, _: Any) -> float:
    query, key = dims[0], dims[1]
    return float(4 * math.prod(query) * key[-2])


_COUNTS: dict[str, Callable[[Any, Any], float]] = {
    "aten::mm": _product(0, 1),
    "aten::bmm": _product(0, 1),
    "aten::addmm": _product(1, 2),
    "aten::baddbmm": _product(1, 2),
    "aten::convolution": _convolution,
    "aten::mkldnn_rnn_layer": _recurrent,
}
