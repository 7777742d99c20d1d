"""What tensors a model consists of, so that two ends can tell whether they speak of the same one."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

ITEM_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Of each dtype, by its name without the library's prefix."""
HASH_BYTES = 32


@dataclass(frozen=True, order=True)
class TensorSpec:
    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        faults = []
        if self.dtype not in ITEM_BYTES:
            faults.append(f"dtype={self.dtype} of {self.name}: unknown; known: {', '.join(ITEM_BYTES)}")
        if any(size < 0 for size in self.shape):
            faults.append(f"shape={self.shape} of {self.name}: sizes must be at least 0")
        if faults:
            raise ValueError("\n".join(faults))

    @property
    def raw_bytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Schema:
    """All tensors that are exchanged, each once, sorted by name: a tensor's index is its place here."""

    tensors: tuple[TensorSpec, ...]

    def __post_init__(self) -> None:
        names = [tensor.name for tensor in self.tensors]
        if names != sorted(set(names)):
            raise ValueError("the tensors of a schema must be sorted by name, and each name be there once")

    @classmethod
    def of(cls, tensors: Iterable[TensorSpec]) -> Schema:
        """
        Raises:
            ValueError: two have one name.
        """
        return cls(tuple(sorted(tensors)))

    @cached_property
    def hash(self) -> bytes:
        return schema_hash(self.tensors)

    @cached_property
    def raw_bytes(self) -> int:
        return sum(tensor.raw_bytes for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def schema_hash(tensors: Iterable[TensorSpec]) -> bytes:
    """BLAKE2b of the sorted list of names, shapes and dtypes, 32 bytes."""
    listed = [[tensor.name, list(tensor.shape), tensor.dtype] for tensor in sorted(tensors)]
    return hashlib.blake2b(json.dumps(listed, separators=(",", ":")).encode(), digest_size=HASH_BYTES).digest()
