from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from compressors.base.chunks import chunks
from compressors.base.compressor import Context, FeedbackMode, Layout, Traits
from compressors.base.payload import PayloadError, from_bytes, require_size, to_bytes
from compressors.parts.packing import Packer, packed_bytes
from compressors.parts.selection import first_largest, largest_of_rows, magnitudes
from compressors.parts.sparse import Sparsifier, kept_of, require_ascending, require_indices, scatter
from testbed.core.kinds import Whole
from testbed.core.parameters import Share

_LARGEST_CHUNK = 1 << 16


class ChunkedTopK(Sparsifier):
    """Send the k largest entries of each chunk.

    Sarfi, Therien, Lidin, Belilovsky, "Communication Efficient LLM Pre-training with SparseLoCo", 2025,
    arXiv:2508.15706 (chunks of 4096); Peng, Quesnelle, Kingma, "DeMo: Decoupled Momentum Optimization", 2024,
    arXiv:2411.19870 (recalled).
    Differs from the papers: gradients are sent as they are, neither quantised nor transformed; chunks are ranges of a
    bucket, not blocks of its matrices; residuals are kept by `ErrorFeedback`, without decay.

    Biased; not linear, so payloads are gathered, or averaged in two shots, which encodes twice: bounds are of one
    encoding. |x - C(x)|^2 <= (1 - k/c) |x|^2 with chunks of c. Use with error feedback. Among equal magnitudes
    the first ones go; NaN counts as larger than infinity.
    Wire: values (K,) float32, then places within chunks, ascending in each: their low 8 bits (K,) uint8, then the
    others, packed to 1, 2, 4 or 8 bits, or 0 up to chunks of 256. K is ceil(density * c) for each chunk, the last by
    its own length. 5.5 K bytes with chunks of 4096.
    Keeps no state.

    Args:
        density: Sent / all entries of a chunk.
        chunk: Entries that compete with one another.

    Raises:
        ValueError: a parameter is out of its range, or a bucket has more than 2**31 - 1 entries.
    """

    def __init__(
        self,
        *,
        density: Share = 0.01,
        chunk: Annotated[int, Whole(2, _LARGEST_CHUNK)] = 4096,
        feedback: FeedbackMode = "auto",
    ) -> None:
        super().__init__(feedback=feedback)
        self.density, self.chunk = density, chunk
        self.traits = Traits(feedback="required", contraction=density)
        wide = max(0, (chunk - 1).bit_length() - 8)
        self._high_bits = next(bits for bits in (0, 1, 2, 4, 8) if bits >= wide)

    def kept(self, numel: int, context: Context) -> int:
        rows, rest = divmod(numel, self.chunk)
        return rows * kept_of(self.density, self.chunk) + kept_of(self.density, rest)

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return self._size_bytes(self.kept(layout.numel, context))

    def select(self, tensor: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        k = kept_of(self.density, self.chunk)
        found = []
        whole = tensor.numel() // self.chunk * self.chunk
        for part in chunks(tensor[:whole], self.chunk):
            rows = magnitudes(tensor[part].float()).view(-1, self.chunk)
            starts = torch.arange(part.start, part.stop, self.chunk, device=tensor.device).unsqueeze(1)
            found.append(largest_of_rows(rows, k).add_(starts).view(-1))
        rest = tensor[whole:].float()
        found.append(first_largest(rest, kept_of(self.density, len(rest))).add_(whole))
        indices = torch.cat(found)
        return indices, tensor.index_select(0, indices).float()

    def encode(self, tensor: Tensor, context: Context) -> Tensor:
        require_indices(tensor.numel(), type(self).__name__)
        indices, values = self.select(tensor, context)
        places = indices % self.chunk
        parts = [to_bytes(values), places.bitwise_and(255).to(torch.uint8)]
        if self._high_bits:
            parts.append(Packer(len(places), self._high_bits).pack((places >> 8).to(torch.uint8)))
        return torch.cat(parts)

    def decode(self, payload: Tensor, out: Tensor, context: Context, *, add: bool = False, scale: float = 1.0) -> None:
        name, numel = type(self).__name__, out.numel()
        k = self.kept(numel, context)
        require_size(payload, self._size_bytes(k), name, numel)
        values, low, high = payload.split([4 * k, k, len(payload) - 5 * k])
        indices = low.to(torch.int32)
        if self._high_bits:
            indices += Packer(k, self._high_bits).unpack(high).to(torch.int32) << 8
        if k and int(indices.max()) >= self.chunk:
            raise PayloadError(f"{name} payload for {numel} elements: a place is not below {self.chunk}")
        chunk_of = torch.arange(k, dtype=torch.int32, device=out.device).div_(
            kept_of(self.density, self.chunk), rounding_mode="floor"
        )
        indices += chunk_of.mul_(self.chunk)
        require_ascending(indices, numel, name)
        scatter(out, indices, from_bytes(values, torch.float32), add, scale)

    def _size_bytes(self, k: int) -> int:
        return 5 * k + packed_bytes(k, self._high_bits)
