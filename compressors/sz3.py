from __future__ import annotations

import math
import struct
import zlib

import numpy as np
import torch
from torch import Tensor

from compressors.base import Compressor, Context, Layout, Traits
from compressors.payload import NonFiniteError, PayloadError, put

_HEADER = struct.Struct("<4sBIII")
"""Magic, kind, number of elements, bytes of the body, CRC-32 of all else."""
_MAGIC = b"LSZ1"
_ZERO, _RAW, _SZ3 = 0, 1, 2
_LIGHTER = 2 / 3
"""Bits of gradients / bits of Laplacian values: their tails are heavier. Measured 0.48 to 0.75 on `digits`."""
ALGORITHMS = {"lorenzo_reg": 0, "interp_lorenzo": 1, "interp": 2, "nopred": 3}


class SZ3(Compressor):
    """Send an error-bounded lossy encoding: prediction, quantisation, Huffman code, zstd.

    Liang et al., "SZ3: A Modular Framework for Composing Prediction-Based Error-Bounded Lossy Compressors", IEEE
    Transactions on Big Data 9(2), 2023, arXiv:2111.02925; the codec is SZ3 3.4 through pysz.
    Differs from the paper: the absolute bound is `error_bound` times the root mean square of the bucket, so that it
    follows gradients as they shrink.

    Biased; not linear, so payloads are gathered. No value is off by more than the bound. With error feedback a bound
    as large as the root mean square still trains: small values are sent as zero until they have added up.
    Wire: header (17 bytes: magic, kind, elements, body bytes, CRC-32), then nothing for a bucket of zeros, raw float32
    where SZ3 gains nothing, or an SZ3 stream of float32 (a stream does not say its type: kind 2 does). Its size depends
    on the values.
    Keeps no state. pysz holds the interpreter's lock while it works.

    Args:
        error_bound: absolute bound / root mean square of the bucket.
        algorithm: predictor, one of lorenzo_reg, interp_lorenzo, interp, nopred. Gradients have no smooth order, so
            nopred loses nothing and is the fastest.

    Raises:
        ValueError: error_bound is not above 0, or the algorithm is unknown.
        NonFiniteError: a bucket holds NaN or infinity, which would make its bound meaningless.
    """

    traits = Traits(fixed_size=False, needs_feedback=True)

    def __init__(self, *, error_bound: float = 1.0, algorithm: str = "nopred", feedback: str | bool = "auto") -> None:
        super().__init__(feedback=feedback)
        faults = []
        if isinstance(error_bound, bool) or not isinstance(error_bound, int | float) or not 0 < error_bound < 1e6:
            faults.append(f"error_bound={error_bound}: must be above 0 and below 1e6")
        if algorithm not in ALGORITHMS:
            faults.append(f"algorithm={algorithm}: unknown; known: {', '.join(ALGORITHMS)}")
        if faults:
            raise ValueError("\n".join(faults))
        self.error_bound = error_bound
        self.algorithm = algorithm

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        """For planning only. Bodies are never above the raw size."""
        bits = min(32.0, _LIGHTER * _laplacian_bits(self.error_bound))
        return _HEADER.size + math.ceil(layout.numel * bits / 8)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        values = np.ascontiguousarray(tensor.float().numpy())
        kind, body = self._body(values)
        checksum = zlib.crc32(body, zlib.crc32(_HEADER.pack(_MAGIC, kind, values.size, len(body), 0)))
        header = _HEADER.pack(_MAGIC, kind, values.size, len(body), checksum)
        return torch.frombuffer(bytearray(header + body), dtype=torch.uint8)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        kind, body = _read_frame(payload, out.numel())
        if kind == _ZERO:
            values = torch.zeros_like(out)
        elif kind == _RAW:
            values = torch.from_numpy(np.frombuffer(body, dtype="<f4").copy())
        else:
            values = torch.from_numpy(_decompress(body, out.numel()))
        put(out, values, add, scale)

    def _body(self, values: np.ndarray) -> tuple[int, bytes]:
        # In float64, where the squares of float32 cannot overflow.
        rms = float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if values.size else 0.0
        if not np.isfinite(rms):
            raise NonFiniteError("SZ3: the bucket holds NaN or infinity; the training has diverged")
        if rms == 0.0:
            return _ZERO, b""
        from pysz import sz, szConfig

        config = szConfig()
        config.errorBoundMode = 0  # absolute
        config.absErrorBound = self.error_bound * rms
        config.cmprAlgo = ALGORITHMS[self.algorithm]
        body = sz.compress(values, config)[0].tobytes()
        return (_SZ3, body) if len(body) < values.nbytes else (_RAW, values.astype("<f4").tobytes())


def _laplacian_bits(error_bound: float) -> float:
    """Entropy of one Laplacian value of standard deviation 1, rounded to a multiple of `2 * error_bound`.

    The multiples 1, 2, ... follow a geometric law; multiples -1, -2, ... as well, and 0 has the rest.
    """
    beyond = math.exp(-math.sqrt(2) * error_bound)
    ratio = beyond * beyond
    return _binary_entropy(beyond) + beyond * (1 + _binary_entropy(ratio) / (1 - ratio))


def _binary_entropy(p: float) -> float:
    return -p * math.log2(p) - (1 - p) * math.log2(1 - p) if 0 < p < 1 else 0.0


def _read_frame(payload: Tensor, numel: int) -> tuple[int, bytes]:
    """Check everything that can be checked before the decoder sees a byte: it neither checks nor bounds itself."""
    if payload.dtype != torch.uint8 or payload.dim() != 1:
        raise PayloadError(f"a payload is a 1-D uint8 tensor, found {payload.dim()}-D {payload.dtype}")
    if len(payload) > _HEADER.size + 4 * numel:
        raise PayloadError(f"SZ3 payload for {numel} elements: {len(payload)} bytes are more than it can need")
    if len(payload) < _HEADER.size:
        raise PayloadError(f"SZ3 payload: {len(payload)} bytes are less than its header")
    data = payload.numpy().tobytes()
    magic, kind, said, size, checksum = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if magic != _MAGIC or kind not in (_ZERO, _RAW, _SZ3):
        raise PayloadError("SZ3 payload: its header is not one of ours")
    if said != numel:
        raise PayloadError(f"SZ3 payload: carries {said} elements, expected {numel}")
    if size != len(body) or (kind == _RAW and size != 4 * numel) or (kind == _ZERO and size):
        raise PayloadError(f"SZ3 payload for {numel} elements: the header says {size} body bytes, found {len(body)}")
    if checksum != zlib.crc32(body, zlib.crc32(_HEADER.pack(magic, kind, said, size, 0))):
        raise PayloadError("SZ3 payload: the checksum does not match")
    return kind, body


def _decompress(body: bytes, numel: int) -> np.ndarray:
    from pysz import sz

    try:
        values, _ = sz.decompress(np.frombuffer(body, dtype=np.uint8), np.float32, (numel,))
    except Exception as error:
        raise PayloadError(f"SZ3 payload: the decoder refused it: {error}") from error
    return np.ascontiguousarray(values).reshape(-1)
