from __future__ import annotations

import math
from typing import Annotated

from torch import Tensor

from compressors.base.compressor import Compressor, Context, FeedbackMode, Layout, Traits
from compressors.base.payload import put
from compressors.parts import codec_process
from compressors.parts.frame import HEADER_BYTES, ZERO, finite_root_mean_square, floats, pack, pack_smaller
from testbed.core.kinds import Choice, Number

_LIGHTER = 2 / 3
"""Bits of gradients / bits of Laplacian values: their tails are heavier. Measured 0.48 to 0.75 on `digits`."""
_ROOM = 4096
"""Bytes a stream may have beyond its values before it is given up."""
ALGORITHMS = {"lorenzo_reg": 0, "interp_lorenzo": 1, "interp": 2, "nopred": 3}


class SZ3(Compressor):
    """Send an error-bounded encoding: prediction, quantisation, Huffman code, zstd.

    Liang et al., "SZ3: A Modular Framework for Composing Prediction-Based Error-Bounded Lossy Compressors", IEEE
    Transactions on Big Data 9(2), 2023, arXiv:2111.02925; the codec is SZ3 3.4 through pysz.
    Differs from the paper: the absolute bound is `error_bound` times the root mean square of the bucket, so that it
    follows gradients as they shrink.

    Biased; not linear, so payloads are gathered, or averaged in two shots, which encodes twice: bounds are of one
    encoding. No value is off by more than the bound. With error feedback a bound as large as the root mean square still
    trains: small values are sent as zero until they have added up.
    Wire: frame (28 bytes, `frame`), then nothing for a bucket of zeros, raw float32 where SZ3 gains nothing, or an SZ3
    stream of float32. Its size depends on the values.
    Keeps no state. The codec works in a helper process (`codec_process`).

    Args:
        error_bound: Error bound / RMS of the bucket.
        algorithm: Predictor; nopred is fastest and loses nothing. Gradients have no smooth order.

    Raises:
        ValueError: error_bound is not above 0, or the algorithm is unknown.
        NonFiniteError: a bucket holds NaN or infinity, which would make its bound meaningless.
        CodecProcessError: the helper process cannot work.
    """

    def __init__(
        self,
        *,
        error_bound: Annotated[float, Number(above=0, below=1e6)] = 1.0,
        algorithm: Annotated[str, Choice(ALGORITHMS)] = "nopred",
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(feedback=feedback)
        self.error_bound = error_bound
        self.algorithm = algorithm
        # Each error is at most the bound, so their mean square is at most error_bound^2 of that of the values.
        promised = 1 - error_bound**2 * 1.001
        self.traits = Traits(
            fixed_size=False,
            feedback="required" if error_bound > 0.3 else "none",
            contraction=promised if promised > 0 else None,
            carries_non_finite=False,
        )

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        """Return an estimate for planning. Bodies are never above the raw size."""
        bits = min(32.0, _LIGHTER * _laplacian_bits(self.error_bound))
        return HEADER_BYTES + math.ceil(layout.numel * bits / 8)

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        values = tensor.detach().float().cpu().contiguous()
        rms = finite_root_mean_square(values, "sz3")
        if rms == 0.0:
            return pack("sz3", ZERO, len(values)).to(tensor.device)
        coded = codec_process.encode(
            "sz3",
            values,
            values.nbytes + _ROOM,
            algorithm=ALGORITHMS[self.algorithm],
            bound=self.error_bound * rms,
        )
        return pack_smaller("sz3", len(values), coded, values).to(tensor.device)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        put(out, floats(payload, "sz3", out.numel(), finite=True).to(out.device), add, scale)


def _laplacian_bits(error_bound: float) -> float:
    """Entropy of one Laplacian value of standard deviation 1, rounded to a multiple of `2 * error_bound`.

    The multiples 1, 2, ... follow a geometric law; multiples -1, -2, ... as well, and 0 has the rest.
    """
    beyond = math.exp(-math.sqrt(2) * error_bound)
    ratio = beyond * beyond
    return _binary_entropy(beyond) + beyond * (1 + _binary_entropy(ratio) / (1 - ratio))


def _binary_entropy(p: float) -> float:
    return -p * math.log2(p) - (1 - p) * math.log2(1 - p) if 0 < p < 1 else 0.0
