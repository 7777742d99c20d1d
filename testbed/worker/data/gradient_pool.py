"""Gradients that take no memory of their own: views of one read-only pool that all workers of a machine share.

    [band 0][band 1] ... [band 7]           the pool: one memfd, 64 MiB, each band of another scale
    band 3: [band 3][band 3][band 3] ...    in each process mapped again and again, one after another, so that a tensor
                                            of any size from any offset on is one contiguous view

docs/replay.md says how the values were chosen, and how they compare with gradients of real training.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import math
import mmap
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BANDS = 8
BAND_NUMEL = 2**21
POOL_BYTES = 4 * BANDS * BAND_NUMEL
ALIGNMENT = 16
"""Elements; offsets are multiples of it, as torch's own tensors start at multiples of 64 bytes."""

_SEED = 2015
_MAP_FIXED, _MAP_NORESERVE, _PROT_NONE = 0x10, 0x4000, 0
_SEAL_S = 10.0
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_FAILED = ctypes.c_void_p(-1).value


class GradientPool:
    """The pool, and this process's views of it."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("longhaul-gradients", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._fd, POOL_BYTES)
        with mmap.mmap(self._fd, POOL_BYTES) as memory:
            values = np.frombuffer(memory, dtype=np.float32).reshape(BANDS, BAND_NUMEL)
            for band in range(BANDS):
                fill(values[band], band)
            del values
        seal(self._fd, _SEAL_S)
        self._largest = -1
        self._gradients: list[Tensor] = []
        self._parameters = torch.empty(0)

    def reserve(self, numel: int) -> None:
        """Make views of up to `numel` elements possible. What is reserved before a fork needs no descriptor after it.

        Earlier views stay as they are.
        """
        if numel <= self._largest:
            return
        self._largest = numel
        shared = mmap.MAP_SHARED, mmap.PROT_READ
        self._gradients = [self._repeated(band, numel + BAND_NUMEL, *shared) for band in range(BANDS)]
        self._parameters = self._repeated(BANDS // 2, numel, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)

    def gradient(self, band: int, offset: int, shape: tuple[int, ...]) -> Tensor:
        """A view of the pool. Writing into it ends the process with SIGSEGV: the memory is everybody's.

        Args:
            offset: in elements, below `BAND_NUMEL`.
        """
        return self._gradients[band].narrow(0, offset, math.prod(shape)).view(shape)

    def parameter(self, shape: tuple[int, ...]) -> Tensor:
        """Values that cost no memory unless they are changed; all parameters of a process lie in one another."""
        return self._parameters.narrow(0, 0, math.prod(shape)).view(shape)

    def _repeated(self, band: int, numel: int, flags: int, protection: int) -> Tensor:
        size = 4 * BAND_NUMEL
        count = -(-numel // BAND_NUMEL)
        reserved = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        start = _map(None, count * size, _PROT_NONE, reserved, -1, 0)
        for index in range(count):
            _map(start + index * size, size, protection, flags | _MAP_FIXED, self._fd, band * size)
        memory = (ctypes.c_char * (count * size)).from_address(start)
        return torch.frombuffer(memory, dtype=torch.float32)


@functools.cache
def gradient_pool() -> GradientPool:
    """This process's pool, or the one it was forked with."""
    return GradientPool()


def seal(fd: int, patience_s: float) -> None:
    """Let no process write to its pages any more.

    Raises:
        OSError: its pages are in use for longer than `patience_s`.
    """
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            return
        except OSError as error:
            # no mapping is left that could write, but the kernel may hold pages for a moment, as while it moves them
            if error.errno != errno.EBUSY or time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)


def _map(address: int | None, size_bytes: int, protection: int, flags: int, fd: int, offset_bytes: int) -> int:
    found = _LIBC.mmap(address, size_bytes, protection, flags, fd, offset_bytes)
    if found == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, f"mmap of {size_bytes} bytes for gradients: {os.strerror(code)}")
    return int(found)


@dataclass(frozen=True)
class Texture:
    """How a band's values are made: a normal number, times one factor for its row and one for its column."""

    rms: float
    row_spread: float
    """Standard deviation of the logarithm of the rows' factors."""
    column_spread: float
    zero_rows: float = 0.0
    """Share of rows that are nothing but zeros."""
    zero_columns: float = 0.0


def _dense(quantile: float) -> Texture:
    return Texture(_MEDIAN_RMS * math.exp(_RMS_SPREAD * quantile), 0.4, 0.3)


ROW_NUMEL = 1024
_MEDIAN_RMS, _RMS_SPREAD = 1e-3, 0.8
DENSE = range(6)
"""Weights, biases and normalisation; six steps of a log-normal spread of scales."""
RECTIFIED, SPARSE_ROWS = 6, 7
"""Linear maps behind a ReLU without normalisation; embeddings of which a batch reaches few rows."""
TEXTURES = (
    *map(_dense, (-1.383, -0.674, -0.210, 0.210, 0.674, 1.383)),  # normal quantiles at 1/12, 3/12, ...
    Texture(_MEDIAN_RMS, 0.6, 0.45, zero_rows=0.1, zero_columns=0.35),
    Texture(_MEDIAN_RMS * 0.3, 0.6, 0.3, zero_rows=0.78),
)


def fill(values: np.ndarray, band: int) -> None:
    """Write the values of a band. Needs no thread but the caller's, so that it may run before a fork."""
    texture, generator = TEXTURES[band], np.random.default_rng((_SEED, band))
    values[:] = generator.standard_normal(values.size, dtype=np.float32)
    matrix = values.reshape(-1, ROW_NUMEL)
    matrix *= _factors(generator, len(matrix), texture.row_spread, texture.zero_rows)[:, None]
    matrix *= _factors(generator, ROW_NUMEL, texture.column_spread, texture.zero_columns)
    matrix *= np.float32(texture.rms / math.sqrt(float(np.mean(np.square(matrix, dtype=np.float64)))))


def _factors(generator: np.random.Generator, count: int, spread: float, zeros: float) -> np.ndarray:
    factors = np.exp(spread * generator.standard_normal(count, dtype=np.float32))
    factors[: round(zeros * count)] = 0
    return generator.permutation(factors)
