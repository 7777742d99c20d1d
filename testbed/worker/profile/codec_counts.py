"""Counts of a rank's work in one round of reducing a bucket, taken while it does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from compressors.base.compressor import Compressor, Context
from compressors.base.feedback import without_feedback
from testbed.core.device.codecs.work import CodecWork

_ALLOCATIONS = "empty"
"""In the name of operations that compute nothing."""


def is_operation(func: Any) -> bool:
    """Return True if a device spends time on an operation of torch's: it is no view and no allocation."""
    return not func.is_view and _ALLOCATIONS not in func.name()


class Counting(TorchDispatchMode):
    """Counts encodings, decodings, and operations on tensors besides, while it is entered; appends what it counted."""

    def __init__(self, compressor: Compressor, found: list[CodecWork]) -> None:
        """Make a count that nothing is in yet.

        Args:
            compressor: The one that reduces, with its feedback.
            found: Takes the count of one round at each exit.
        """
        super().__init__()
        self._codec, self._found = without_feedback(compressor), found
        self._encoded, self._decoded, self._bytes = list[int](), list[int](), list[int]()
        self._is_inside = False

    def __enter__(self) -> Counting:
        codec, encode, decode = self._codec, self._codec.encode, self._codec.decode

        def counted_encode(tensor: Tensor, context: Context) -> Tensor:
            with self._inside(self._encoded, tensor.numel()):
                return encode(tensor, context)

        def counted_decode(payload: Tensor, out: Tensor, context: Context, **how: Any) -> None:
            with self._inside(self._decoded, out.numel()):
                decode(payload, out, context, **how)

        vars(codec).update(encode=counted_encode, decode=counted_decode)  # hide those of the class
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for name in ("encode", "decode"):
            del vars(self._codec)[name]
        self._found.append(
            CodecWork(
                encodes=len(self._encoded),
                encoded=sum(self._encoded),
                decodes=len(self._decoded),
                decoded=sum(self._decoded),
                operations=len(self._bytes),
                operation_bytes=sum(self._bytes),
            )
        )

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self._is_inside and is_operation(func):
            self._bytes.append(sum(t.nbytes for t in tree_leaves((args, kwargs, result)) if isinstance(t, Tensor)))
        return result

    @contextmanager
    def _inside(self, sizes: list[int], elements: int) -> Iterator[None]:
        """A codec may encode by its own decoding: the outermost call counts."""
        if self._is_inside:
            yield
            return
        sizes.append(elements)
        self._is_inside = True
        try:
            yield
        finally:
            self._is_inside = False
