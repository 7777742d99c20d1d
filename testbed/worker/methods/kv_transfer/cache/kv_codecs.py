"""How keys or values of some positions become bytes: as floats, in few bits, or as entropy-coded differences."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, TypeVar

import numpy as np
import torch
import zstandard
from numpy.typing import NDArray
from torch import Tensor

from compressors.base.payload import NonFiniteError, PayloadError, require_finite
from compressors.parts.packing import Packer, packed_bytes
from testbed.core.declaration import Declared
from testbed.core.kinds import Choice, Number, Whole
from testbed.core.parameters import CountOrZero
from testbed.worker.methods.kv_transfer.cache.half_floats import half_above, half_below

Part = Literal["keys", "values"]
Along = Literal["position", "channel"]
Bits = Annotated[int, Choice((2, 4, 8))]
Group = Annotated[int, Whole(2)]
AlongChoice = Annotated[Along, Choice(("position", "channel"))]
AnchorStep = Annotated[float, Number(least=1e-3, most=10)]
ZstdLevel = Annotated[int, Whole(1, 19)]
_Array = TypeVar("_Array", bound=np.generic)


class KVCodec(Declared, ABC):
    """Carries a matrix [positions, channels] of keys or of values; how large it is the receiver knows.

    Errors of `encode`: NonFiniteError, a number is NaN, infinite, or beyond what the codec's floats hold. Of `decode`:
    PayloadError, the message cannot be one for so many positions and channels.
    """

    by_position: ClassVar[bool] = False
    """Any positions can be carried by themselves, and decode to the same numbers among any others."""

    @abstractmethod
    def encode(self, matrix: Tensor, part: Part) -> bytes: ...

    @abstractmethod
    def decode(self, message: bytes, positions: int, channels: int, part: Part) -> Tensor:
        """[positions, channels], float32."""

    @abstractmethod
    def bound(self, matrix: Tensor, part: Part) -> Tensor:
        """The most by which each number of what is decoded differs, [positions, channels]."""

    def size_bytes(self, positions: int, channels: int, part: Part) -> int | None:
        """Of a message; None: it depends on the numbers."""
        return None


class Floats(KVCodec):
    """Floats of 32 or 16 bits. Wire: [positions, channels], little-endian; bits / 8 bytes a number."""

    by_position = True

    def __init__(self, *, bits: Annotated[int, Choice((16, 32))] = 16) -> None:
        self.dtype: type[np.floating] = np.float16 if bits == 16 else np.float32

    def encode(self, matrix: Tensor, part: Part) -> bytes:
        numbers = _numbers(matrix)
        _hold(np.abs(numbers).max(initial=0.0) <= np.finfo(self.dtype).max)
        return numbers.astype(self.dtype).tobytes()

    def decode(self, message: bytes, positions: int, channels: int, part: Part) -> Tensor:
        _require(message, self.size_bytes(positions, channels, part))
        floats = np.frombuffer(message, self.dtype).astype(np.float32)
        return torch.from_numpy(floats.reshape(positions, channels))

    def bound(self, matrix: Tensor, part: Part) -> Tensor:
        """Half a unit in the last of 11 bits, or of the smallest number; zero for 32 bits."""
        if self.dtype is np.float32:
            return torch.zeros_like(matrix)
        return (matrix.abs() * 2.0**-11).clamp(min=2.0**-25)

    def size_bytes(self, positions: int, channels: int, part: Part) -> int:
        return np.dtype(self.dtype).itemsize * positions * channels


class Uniform(KVCodec):
    """`bits` for each number, evenly between the least and the greatest of its group.

    Rounds to the nearest level, so off by at most half a step. Wire: of each group its least number rounded down and
    its step rounded up, as two planes of float16; then the codes, packed in planes (`Packer`). Groups are counted
    along a position's channels or along a channel's positions, row by row or column by column; the last may be short.

    Args:
        bits: 2, 4 or 8.
        along: whose numbers share a scale: those of a "position", or those of a "channel".
        group: numbers in a group; None: all of a position, or of a channel.
    """

    def __init__(self, *, bits: Bits = 8, along: AlongChoice = "position", group: Group | None = None) -> None:
        self.bits, self.along, self.group = bits, along, group

    @property
    def by_position(self) -> bool:  # type: ignore[override]
        return self.along == "position"

    def encode(self, matrix: Tensor, part: Part) -> bytes:
        rows = self._rows(_numbers(matrix))
        if not rows.size:
            return b""
        least, step = self._scales(rows)
        low, width = self._spread(least, rows.shape[1]), self._spread(step, rows.shape[1])
        codes = np.rint((rows - low) / np.where(width > 0, width, 1.0)).clip(0, 2**self.bits - 1)
        flat = torch.from_numpy(codes.astype(np.uint8).ravel())
        packed = Packer(len(flat), self.bits).pack(flat)
        return least.tobytes() + step.tobytes() + packed.numpy().tobytes()

    def decode(self, message: bytes, positions: int, channels: int, part: Part) -> Tensor:
        _require(message, self.size_bytes(positions, channels, part))
        count, length = self._rows_of(positions, channels)
        if not count * length:
            return torch.zeros(positions, channels)
        groups = self._groups(length)
        scales = np.frombuffer(message, np.float16, 2 * count * groups).reshape(2, count, groups)
        packed = torch.frombuffer(bytearray(message[scales.nbytes :]), dtype=torch.uint8)
        codes = Packer(count * length, self.bits).unpack(packed).numpy().reshape(count, length)
        rows = self._spread(scales[0], length) + codes * self._spread(scales[1], length)
        return torch.from_numpy(self._rows(rows).astype(np.float32))

    def bound(self, matrix: Tensor, part: Part) -> Tensor:
        """Half a step, and the rounding of float32."""
        rows = self._rows(_numbers(matrix))
        if not rows.size:
            return torch.zeros_like(matrix)
        bound = self._spread(self._scales(rows)[1], rows.shape[1]) / 2 + np.abs(rows) * 2.0**-23
        return torch.from_numpy(self._rows(bound).astype(np.float32) * (1 + 2.0**-20))

    def size_bytes(self, positions: int, channels: int, part: Part) -> int:
        count, length = self._rows_of(positions, channels)
        return 4 * count * self._groups(length) + packed_bytes(count * length, self.bits)

    def _rows(self, matrix: NDArray[_Array]) -> NDArray[_Array]:
        """A row for each position or channel, whichever shares a scale; its own opposite."""
        return matrix if self.along == "position" else np.ascontiguousarray(matrix.T)

    def _rows_of(self, positions: int, channels: int) -> tuple[int, int]:
        return (positions, channels) if self.along == "position" else (channels, positions)

    def _groups(self, length: int) -> int:
        return math.ceil(length / (self.group or max(length, 1)))

    def _spread(self, of_groups: NDArray[np.float16], length: int) -> NDArray[np.float64]:
        return np.repeat(of_groups.astype(np.float64), self.group or length, axis=1)[:, :length]

    def _scales(self, rows: NDArray[np.float64]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
        """Least number and step of each group, [rows, groups]: what lies between levels covers all numbers."""
        starts = np.arange(0, rows.shape[1], self.group or rows.shape[1])
        low, high = np.minimum.reduceat(rows, starts, axis=1), np.maximum.reduceat(rows, starts, axis=1)
        least = half_below(low)
        step = half_above((high - least) / (2**self.bits - 1))
        _hold(bool(np.isfinite(least).all() and np.isfinite(step).all()))
        return least, step


class Kivi(KVCodec):
    """2 bits: keys share scales by channel, values by position; the last positions are whole.

    Liu et al., "KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache", ICML 2024: some channels of keys are
    large at all positions, values have no such channels. Wire: `Uniform` of the positions before the last `residual`,
    as many as fill groups; the rest as float16.

    Args:
        bits: 2 in the paper.
        group: positions of a channel that share a scale for keys, channels of a position for values.
        residual: the least number of last positions that are whole.
    """

    def __init__(self, *, bits: Bits = 2, group: Group = 32, residual: CountOrZero = 128) -> None:
        self.group, self.residual = group, residual
        self._coarse: dict[Part, Uniform] = {
            "keys": Uniform(bits=bits, along="channel", group=group),
            "values": Uniform(bits=bits, along="position", group=group),
        }
        self._whole = Floats()

    def encode(self, matrix: Tensor, part: Part) -> bytes:
        cut = self.coarse_positions(len(matrix))
        return self._coarse[part].encode(matrix[:cut], part) + self._whole.encode(matrix[cut:], part)

    def decode(self, message: bytes, positions: int, channels: int, part: Part) -> Tensor:
        _require(message, self.size_bytes(positions, channels, part))
        cut = self.coarse_positions(positions)
        size = self._coarse[part].size_bytes(cut, channels, part)
        coarse = self._coarse[part].decode(message[:size], cut, channels, part)
        return torch.cat([coarse, self._whole.decode(message[size:], positions - cut, channels, part)])

    def bound(self, matrix: Tensor, part: Part) -> Tensor:
        cut = self.coarse_positions(len(matrix))
        return torch.cat([self._coarse[part].bound(matrix[:cut], part), self._whole.bound(matrix[cut:], part)])

    def size_bytes(self, positions: int, channels: int, part: Part) -> int:
        cut = self.coarse_positions(positions)
        coarse = self._coarse[part].size_bytes(cut, channels, part)
        return coarse + self._whole.size_bytes(positions - cut, channels, part)

    def coarse_positions(self, positions: int) -> int:
        return max(positions - self.residual, 0) // self.group * self.group


class CacheGen(KVCodec):
    """Differences against the first position of each group, rounded and entropy-coded.

    After Liu et al., "CacheGen: KV Cache Compression and Streaming for Fast Large Language Model Serving", SIGCOMM
    2024: neighbouring positions have similar keys and values, so their differences are small and share few codes. Here
    a difference is against the anchor as decoded, so that errors never add up, and the code is zstd's, over all codes
    of a channel in turn, in place of the paper's arithmetic code. Wire: steps of channels (float16); anchors in 8 bits
    (`Uniform` along channels); a zstd frame with a checksum, of differences in steps, c as 2 c or -2 c - 1 in 16 bits,
    low bytes of all first.

    Args:
        group: positions from one anchor to the next.
        step: of rounding, in root mean squares of the channel's own differences; errors are at most half of it.
        level: of zstd.
    """

    def __init__(self, *, group: Group = 10, step: AnchorStep = 0.5, level: ZstdLevel = 9) -> None:
        self.group, self.step, self.level = group, step, level
        self._anchors = Uniform(bits=8, along="channel")

    def encode(self, matrix: Tensor, part: Part) -> bytes:
        if not matrix.numel():
            return b""
        steps, anchors, differences = self._parts(matrix, part)
        codes = np.rint(differences / np.where(steps > 0, steps, 1.0))
        _hold(bool(np.abs(codes).max() < 2**15))
        signed = codes.T.astype(np.int64).ravel()
        folded = np.where(signed < 0, -2 * signed - 1, 2 * signed).astype("<u2")
        low_first = folded.view(np.uint8).reshape(-1, 2).T.tobytes()
        coded = zstandard.ZstdCompressor(level=self.level, write_checksum=True).compress(low_first)
        return steps.tobytes() + anchors + coded

    def decode(self, message: bytes, positions: int, channels: int, part: Part) -> Tensor:
        if not positions * channels:
            _require(message, 0)
            return torch.zeros(positions, channels)
        count = math.ceil(positions / self.group)
        size = self._anchors.size_bytes(count, channels, part)
        raw = _inflated(message[2 * channels + size :], 2 * positions * channels)
        planes = np.frombuffer(raw, np.uint8).reshape(2, -1)
        folded = planes.T.copy().view("<u2").astype(np.int64).reshape(channels, positions).T
        codes = np.where(folded % 2, -(folded + 1) // 2, folded // 2)
        steps = np.frombuffer(message, np.float16, channels).astype(np.float64)
        anchors = self._anchors.decode(message[2 * channels : 2 * channels + size], count, channels, part)
        return torch.from_numpy((self._spread(anchors, positions) + codes * steps).astype(np.float32))

    def bound(self, matrix: Tensor, part: Part) -> Tensor:
        """Half a step of the channel, and the rounding of float32."""
        if not matrix.numel():
            return torch.zeros_like(matrix)
        half = self._parts(matrix, part)[0].astype(np.float64) / 2
        bound = half + np.abs(_numbers(matrix)) * 2.0**-23
        return torch.from_numpy(bound.astype(np.float32) * (1 + 2.0**-20))

    def _parts(self, matrix: Tensor, part: Part) -> tuple[NDArray[np.float16], bytes, NDArray[np.float64]]:
        """Steps of channels, encoded anchors, and the differences from what these decode to."""
        anchors = self._anchors.encode(matrix[:: self.group], part)
        decoded = self._anchors.decode(anchors, math.ceil(len(matrix) / self.group), matrix.shape[1], part)
        differences = _numbers(matrix) - self._spread(decoded, len(matrix))
        steps = half_above(self.step * np.sqrt((differences**2).mean(axis=0)))
        _hold(bool(np.isfinite(steps).all()))
        return steps, anchors, differences

    def _spread(self, anchors: Tensor, positions: int) -> NDArray[np.float64]:
        return np.repeat(_numbers(anchors), self.group, axis=0)[:positions]


def _numbers(matrix: Tensor) -> NDArray[np.float64]:
    require_finite(matrix, "KV codec")
    return matrix.double().numpy()


def _hold(fits: bool) -> None:
    if not fits:
        raise NonFiniteError("KV codec: a key or value lies beyond what floats of 16 bits hold")


def _require(message: bytes, size_bytes: int) -> None:
    if len(message) != size_bytes:
        raise PayloadError(f"KV message: expected {size_bytes} bytes, found {len(message)}")


def _inflated(coded: bytes, size_bytes: int) -> bytes:
    try:
        # before any of it is made: what a frame says of its size is what is allocated
        if (found := zstandard.frame_content_size(coded)) != size_bytes:
            raise PayloadError(f"KV message: its zstd frame holds {found} bytes, expected {size_bytes}")
        raw = zstandard.ZstdDecompressor().decompress(coded, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise PayloadError(f"KV message: its zstd frame of {len(coded)} bytes cannot be read: {error}") from error
    return raw
