"""Value codecs of DeepReduce: values of chosen entries. A library: no compressor is defined here."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from compressors.base.payload import PayloadError
from compressors.base.streams import Stream
from compressors.parts.bits import Bytes

Values = NDArray[np.float32]


class ValueCodec(ABC):
    """Codes the values of entries, in the order of these."""

    number: ClassVar[int]
    """Number of the codec on the wire."""
    loses: float | None = 0.0
    """Largest share of the energy of values that is lost, in expectation; None: no such promise."""
    unbiased: bool = True
    carries_non_finite: bool = True
    """Trait of that name."""

    @abstractmethod
    def encode(self, values: Values, stream: Stream) -> Bytes:
        """Return the bytes of `values` for the wire.

        Raises:
            NonFiniteError: It cannot carry NaN or infinity, and there is some.
        """

    @abstractmethod
    def decode(self, data: Bytes, count: int) -> Values:
        """Return `count` values.

        Raises:
            PayloadError: `data` does not code that many values.
        """

    @abstractmethod
    def bits(self, count: int) -> float:
        """About how many bits so many values take."""

    def _refused(self, count: int, found: str) -> PayloadError:
        return PayloadError(f"{type(self).__name__} code of {count} values: {found}")


class RawValues(ValueCodec):
    """A float32 each; 32 bits a value."""

    number = 0

    def encode(self, values: Values, stream: Stream) -> Bytes:
        return as_bytes(values)

    def decode(self, data: Bytes, count: int) -> Values:
        if len(data) != 4 * count:
            raise self._refused(count, f"expected {4 * count} bytes, found {len(data)}")
        return floats(data)

    def bits(self, count: int) -> float:
        return 32.0 * count


class Deflate(ValueCodec):
    """The bytes of float32 values through zlib (RFC 1950), level 6; as they are where that is shorter.

    Nothing is lost; mantissas are nearly random, so little is gained.
    """

    number = 1

    def encode(self, values: Values, stream: Stream) -> Bytes:
        plain = as_bytes(values)
        packed = np.frombuffer(zlib.compress(plain.tobytes(), 6), dtype=np.uint8)
        return packed if len(packed) < len(plain) else plain

    def decode(self, data: Bytes, count: int) -> Values:
        if len(data) == 4 * count:
            return floats(data)
        unpacker = zlib.decompressobj()
        try:
            plain = unpacker.decompress(data.tobytes(), 4 * count + 1)
        except zlib.error as error:
            raise self._refused(count, str(error)) from error
        if len(plain) != 4 * count or not unpacker.eof or unpacker.unused_data:
            raise self._refused(count, "its stream has another length")
        return floats(np.frombuffer(plain, dtype=np.uint8))

    def bits(self, count: int) -> float:
        return 30.0 * count


class QSGD(ValueCodec):
    """Stochastic levels of the norm of each stretch of values.

    Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
    NIPS 2017, arXiv:1610.02132, section 3.1, without its entropy code.

    Unbiased; with n values to a stretch and s levels it adds at most min(n / s^2, sqrt(n) / s) of their energy. Norms
    (ceil(k / n),) float32, then levels (k,) int8. A stretch that holds NaN or infinity decodes to NaN.
    """

    number = 2

    def __init__(self, levels: int, bucket_size: int) -> None:
        self.levels, self.bucket_size = levels, bucket_size
        self.loses = min(bucket_size / levels**2, bucket_size**0.5 / levels)

    def encode(self, values: Values, stream: Stream) -> Bytes:
        count, wide = len(values), self._rows(values).astype(np.float64)
        norms = np.sqrt(np.square(wide).sum(axis=1)).astype(np.float32)
        with np.errstate(all="ignore"):
            exact = np.abs(wide) / norms[:, None] * self.levels
        floor = np.floor(exact)
        dice = self._rows(stream.uniform(0, count).numpy())
        codes = np.nan_to_num((floor + (dice < exact - floor)) * np.sign(wide), nan=0.0)
        codes = np.clip(codes, -self.levels, self.levels).astype(np.int8).reshape(-1)[:count]
        return np.concatenate([as_bytes(norms), codes.view(np.uint8)])

    def decode(self, data: Bytes, count: int) -> Values:
        norms_bytes = 4 * self._stretches(count)
        if len(data) != norms_bytes + count:
            raise self._refused(count, f"expected {norms_bytes + count} bytes, found {len(data)}")
        levels = self._rows(data[norms_bytes:].view(np.int8).astype(np.float32))
        norms = floats(data[:norms_bytes])
        with np.errstate(all="ignore"):
            return (norms[:, None] * (levels / np.float32(self.levels))).reshape(-1)[:count]

    def bits(self, count: int) -> float:
        return 8.0 * count + 32 * self._stretches(count)

    def _stretches(self, count: int) -> int:
        return -(-count // self.bucket_size)

    def _rows(self, values: Values) -> Values:
        padding = self._stretches(len(values)) * self.bucket_size - len(values)
        return np.pad(values, (0, padding)).reshape(-1, self.bucket_size)


def as_bytes(values: NDArray[Any]) -> Bytes:
    """Return the bytes of float32 values, little-endian."""
    return np.ascontiguousarray(values, dtype="<f4").view(np.uint8)


def floats(data: Bytes) -> Values:
    return np.frombuffer(data.tobytes(), dtype="<f4").astype(np.float32)
