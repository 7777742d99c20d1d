"""Majority votes over signs, which sign methods without a scale share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from compressors.base.chunks import CHUNK, chunks
from compressors.base.compressor import Compressor, Context, Exchange, Layout, Rounds, Route, part_layouts
from compressors.base.payload import NonFiniteError, PayloadError, put, require_size
from compressors.parts.packing import SignBits, packed_bytes

_SMALLEST = 2.0**-149
"""Of the numbers above zero."""


class MajorityVote(Compressor):
    """Leaves in `out` the sign that most ranks have, 1 or -1.

    A bit cannot say zero. So a value of zero, and a tie, which an even number of ranks can have, count as above zero or
    below it by turns, from one position to the next and from one step to the next: over two steps they cancel. A
    stretch that is all zeros casts no vote, which its first byte says; where no rank votes, zeros come out.

    Two ranks, and buckets with fewer values than ranks, gather all votes; else each rank counts one part and sends what
    it found to all.
    Wire: 1 if there are votes, else 0, uint8; then signs (ceil(n / 8),) packed; 1 + ceil(n / 8) bytes.
    """

    @abstractmethod
    def ballot(self, tensor: Tensor, context: Context) -> Tensor:
        """Return the tensor whose signs are this rank's votes: `tensor`, or one that is kept."""

    def payload_bytes(self, layout: Layout, context: Context) -> int:
        return _vote_bytes(layout.numel)

    def sent_bytes(self, layout: Layout, world_size: int, route: Route, *, step: int = 0) -> int:
        if _gathers(layout, world_size):
            return world_size * (world_size - 1) * _vote_bytes(layout.numel)
        parts = [_vote_bytes(part.numel) for part in part_layouts(layout, world_size)]
        return (world_size - 1) * (sum(parts) + world_size * max(parts))

    def rounds(self, tensor: Tensor, context: Context, *, out: Tensor, error: Tensor | None = None) -> Rounds:
        world_size, rank, name = context.world_size, context.rank, type(self).__name__
        ballot = self.ballot(tensor, context)
        alone = _gathers(context.layout, world_size)
        numels = [part.numel for part in ([context.layout] if alone else part_layouts(context.layout, world_size))]
        turns = [context.step + start for start in accumulate(numels, initial=0)]
        payloads = [encode_votes(part, turn, name) for part, turn in zip(ballot.split(numels), turns, strict=False)]
        if error is not None:
            if error is not tensor:
                error.copy_(tensor)
            for part, payload in zip(error.split(numels), payloads, strict=True):
                decode_votes(payload, part, name, add=True, scale=-1.0)
        sizes = [_vote_bytes(numel) for numel in numels]
        if alone:
            received = yield Exchange(kind="all_gather", data=payloads, sizes=sizes * world_size)
            decode_votes(_counted(received, out, turns[0], name), out, name)
            return
        received = yield Exchange(kind="all_to_all", data=payloads, sizes=[sizes[rank]] * world_size)
        parts = out.split(numels)
        found = _counted(received, parts[rank], turns[rank], name)
        gathered = yield Exchange(kind="all_gather", data=[found], sizes=sizes)
        for theirs, part in zip(gathered, parts, strict=True):
            decode_votes(theirs, part, name)


def encode_votes(tensor: Tensor, turn: int, name: str, *, votes: bool | None = None) -> Tensor:
    """Return the payload of votes: signs of `tensor`, packed.

    Args:
        turn: Step and position together, which decide what zeros count as.
        votes: True if there are any; None: unless all is zero.

    Raises:
        NonFiniteError: The tensor holds NaN or infinity, whose votes would look like any others.
    """
    payload = torch.empty(_vote_bytes(tensor.numel()), dtype=torch.uint8, device=tensor.device)
    packed, pieces = payload[1:], list(chunks(tensor, 2 * CHUNK))
    most = pieces[0].stop if pieces else 0
    bits, below = SignBits(most, tensor.device), torch.zeros(most, device=tensor.device)
    below[1 - turn % 2 :: 2] = _SMALLEST
    sums = torch.empty(len(pieces), device=tensor.device)
    for piece, total in zip(pieces, sums, strict=True):
        values = tensor[piece].float().contiguous()
        torch.sum(values, dim=0, out=total)
        bits.pack(values, packed[piece.start // 8 : packed_bytes(piece.stop, 1)], below[: len(values)])
    # A sum that overflowed is no fault; values are then looked at themselves.
    if not bool(sums.isfinite().all()) and not bool(tensor.isfinite().all()):
        raise NonFiniteError(f"{name} sends signs alone, found NaN or infinity")
    if votes is None:
        votes = bool(sums.any()) or bool(tensor.any())
    if not votes:
        packed.zero_()
    payload[0] = int(votes)
    return payload


def decode_votes(payload: Tensor, out: Tensor, name: str, *, add: bool = False, scale: float = 1.0) -> None:
    """Write the votes of a payload into `out`, 1 or -1; zeros if it does not vote.

    Raises:
        PayloadError: The payload is not as long as one for a tensor of this size, or does not say whether it votes.
    """
    numel = out.numel()
    require_size(payload, _vote_bytes(numel), name, numel)
    votes = int(payload[0])
    if votes > 1:
        raise PayloadError(f"{name} payload for {numel} elements: its first byte must be 0 or 1, found {votes}")
    if not votes:
        put(out, torch.zeros((), device=out.device), add, scale)
        return
    packed = payload[1:]
    bits = SignBits(next(chunks(out, 2 * CHUNK), slice(0, 0)).stop, out.device)
    in_place = out.dtype == torch.float32 and out.is_contiguous() and not add and scale == 1.0
    for piece in chunks(out, 2 * CHUNK):
        count = piece.stop - piece.start
        place = out[piece] if in_place and count % 8 == 0 else None
        signs = bits.unpack(packed[piece.start // 8 : packed_bytes(piece.stop, 1)], place)
        if place is None:
            put(out[piece], signs[:count], add, scale)


def _counted(payloads: Sequence[Tensor], scratch: Tensor, turn: int, name: str) -> Tensor:
    """The majority of votes, as a vote."""
    for index, payload in enumerate(payloads):
        decode_votes(payload, scratch, name, add=index > 0)
    return encode_votes(scratch, turn, name, votes=any(bool(payload[0]) for payload in payloads))


def _vote_bytes(numel: int) -> int:
    return 1 + packed_bytes(numel, 1)


def _gathers(layout: Layout, world_size: int) -> bool:
    return world_size <= 2 or layout.numel < world_size
