"""Closed-form costs of collectives (alpha-beta model): alpha seconds a message, beta seconds a byte.

Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005.
`size_bytes` are the bytes that one rank holds; sent bytes are those that one rank puts on the wire.
"""

from __future__ import annotations


def all_reduce_sent_bytes(size_bytes: float, world_size: int) -> float:
    """Return the bytes of a ring: reduce-scatter, then all-gather; each sends (P-1)/P of the tensor."""
    return 2 * (world_size - 1) / world_size * size_bytes


def all_gather_sent_bytes(size_bytes: float, world_size: int) -> float:
    """Return the bytes of a ring, where `size_bytes`, one rank's contribution, passes P-1 links."""
    return (world_size - 1) * size_bytes


def all_to_all_sent_bytes(size_bytes: float, world_size: int) -> float:
    """Return the bytes of pairwise messages; a rank keeps 1/P of `size_bytes`, its whole input."""
    return (world_size - 1) / world_size * size_bytes


def all_reduce_s(size_bytes: float, world_size: int, alpha_s: float, beta_s_byte: float) -> float:
    """Return the seconds of a ring: 2(P-1) messages after one another."""
    return 2 * (world_size - 1) * alpha_s + all_reduce_sent_bytes(size_bytes, world_size) * beta_s_byte


def all_gather_s(size_bytes: float, world_size: int, alpha_s: float, beta_s_byte: float) -> float:
    """Return the seconds of a ring: P-1 messages after one another."""
    return (world_size - 1) * alpha_s + all_gather_sent_bytes(size_bytes, world_size) * beta_s_byte


def all_to_all_s(size_bytes: float, world_size: int, alpha_s: float, beta_s_byte: float) -> float:
    """Return the seconds of all pairs at once: the latency of one message."""
    return (alpha_s if world_size > 1 else 0.0) + all_to_all_sent_bytes(size_bytes, world_size) * beta_s_byte
