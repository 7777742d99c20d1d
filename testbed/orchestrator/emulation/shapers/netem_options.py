"""A direction's profile as sch_netem takes and reports it: the only place that knows its numbers.

Written by hand, since pyroute2 knows neither the Gilbert-Elliott chain, nor delays above 275 s, nor the seed. Kept are
the kernel's own names (linux/pkt_sched.h).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from array import array
from dataclasses import dataclass
from typing import Any

from testbed.core.spec.link_profile import GilbertElliott, LinkProfile
from testbed.orchestrator.emulation.kernel.netlink import attributes
from testbed.orchestrator.emulation.shapers.delay import spread_at

_TCA_KIND, _TCA_OPTIONS = 1, 2
_DELAY_DIST, _REORDER, _LOSS, _RATE, _RATE64, _LATENCY64, _JITTER64, _PRNG_SEED = 2, 3, 5, 6, 8, 10, 11, 14
_LOSS_GE = 2
"""Inside of _LOSS."""
_NESTED = 0x8000
_QOPT = struct.Struct("=6I")
"""latency and jitter in ticks (they come again in nanoseconds), limit, loss, gap, duplicate."""
_CHAIN = struct.Struct("=4I")
"""p, r, h, k1: into the bad state and out of it, arrival in the bad state, loss in the good one."""
_REORDERING = struct.Struct("=2I")
"""Share, and its correlation."""
_RATES = struct.Struct("=IiIi")
"""bytes a second, overhead of a packet and of a cell, cell size."""
_TICK_NS = 64
_MAX_UINT32 = 2**32 - 1
ORDERING_RATE_BYTE_S = 12_500_000_000
"""netem lets a late packet be overtaken unless it is told a rate: then none is sent before the one in front of it. So
with jitter, where it has no other, it is told 100 Gbit/s, which holds up a packet by 0.1 us, a super-packet by 5."""
RATE_RATIO = 1.001
"""netem's rate over the bucket's, at which a full link sends; what the bucket lets pass at once leaves at netem's."""
_TABLE_SIZE, _TABLE_SCALE, _TABLE_MAX = 4096, 8192, 32_767


@dataclass(frozen=True)
class NetemSettings:
    """What is asked of a qdisc, or what it says it does."""

    delay_ns: int
    jitter_ns: int
    loss_ratio: float
    chain: GilbertElliott | None
    duplicate_ratio: float
    reorder_ratio: float
    limit_packets: int
    rate_byte_s: int
    seed: int | None
    """None where the kernel draws without one (before 6.6)."""

    @property
    def mean_loss_ratio(self) -> float:
        chain = self.chain
        if chain is None:
            return self.loss_ratio
        changes = chain.enter_bad_ratio + chain.leave_bad_ratio
        bad_share = chain.enter_bad_ratio / changes if changes else 0.0
        return bad_share * chain.bad_loss_ratio + (1 - bad_share) * chain.good_loss_ratio


def settings_of(profile: LinkProfile, limit_packets: int, seed: int, *, transmits: bool = True) -> NetemSettings:
    """Return what is asked of a qdisc.

    Args:
        transmits: Packets that a bucket let pass at once take the link's time for their bytes (`transmission`), unless
            the bucket was asked for.
    """
    rate_byte_s = ORDERING_RATE_BYTE_S if profile.jitter_s else 0
    if transmits and not profile.burst_bytes:
        rate_byte_s = math.ceil(RATE_RATIO * profile.rate_bit_s / 8)
    chain = profile.gilbert_elliott
    return NetemSettings(
        delay_ns=round(profile.delay_s * 1e9),
        jitter_ns=round(profile.jitter_s * 1e9),
        loss_ratio=0.0 if chain else profile.loss_ratio,
        chain=chain,
        duplicate_ratio=profile.duplicate_ratio,
        reorder_ratio=profile.reorder_ratio,
        limit_packets=limit_packets,
        rate_byte_s=rate_byte_s,
        seed=seed,
    )


def losing_all(settings: NetemSettings) -> NetemSettings:
    """A doubled packet survives the loss of one copy, so there is no doubling either."""
    return dataclasses.replace(settings, loss_ratio=1.0, chain=None, duplicate_ratio=0.0)


def encode(settings: NetemSettings, distribution: str) -> bytes:
    """Kind and options of a qdisc request. All is said each time: what is left out keeps its old value."""
    options = _QOPT.pack(
        min(settings.delay_ns // _TICK_NS, _MAX_UINT32),
        settings.limit_packets,
        _share(settings.loss_ratio),
        1 if settings.reorder_ratio else 0,
        _share(settings.duplicate_ratio),
        min(settings.jitter_ns // _TICK_NS, _MAX_UINT32),
    )
    options += _attribute(_LATENCY64, struct.pack("=q", settings.delay_ns))
    options += _attribute(_JITTER64, struct.pack("=q", settings.jitter_ns))
    options += _attribute(_REORDER, _REORDERING.pack(_share(settings.reorder_ratio), 0))
    options += _attribute(_RATE, _RATES.pack(min(settings.rate_byte_s, _MAX_UINT32), 0, 0, 0))
    if settings.rate_byte_s > _MAX_UINT32:
        options += _attribute(_RATE64, struct.pack("=Q", settings.rate_byte_s))
    if settings.jitter_ns:
        options += _attribute(_DELAY_DIST, distribution_table(distribution))
    if chain := settings.chain:
        shares = (chain.enter_bad_ratio, chain.leave_bad_ratio, 1 - chain.bad_loss_ratio, chain.good_loss_ratio)
        options += _attribute(_LOSS | _NESTED, _attribute(_LOSS_GE, _CHAIN.pack(*map(_share, shares))))
    if settings.seed is not None:
        options += _attribute(_PRNG_SEED, struct.pack("=Q", settings.seed))
    return _attribute(_TCA_KIND, b"netem\0") + _attribute(_TCA_OPTIONS, options)


def decode(message: dict[int, bytes]) -> NetemSettings | None:
    """From the attributes of a qdisc; None if it is not netem."""
    if message.get(_TCA_KIND, b"").rstrip(b"\0") != b"netem":
        return None
    options = message[_TCA_OPTIONS]
    _, limit_packets, loss, _, duplicate, _ = _QOPT.unpack_from(options)
    found = attributes(options[_QOPT.size :])
    reorder, _ = _REORDERING.unpack_from(found[_REORDER])
    (rate_byte_s,) = struct.unpack_from("=Q", found[_RATE64]) if _RATE64 in found else (0,)
    chain = attributes(found[_LOSS]).get(_LOSS_GE) if _LOSS in found else None
    return NetemSettings(
        delay_ns=struct.unpack("=q", found[_LATENCY64])[0],
        jitter_ns=struct.unpack("=q", found[_JITTER64])[0],
        loss_ratio=loss / _MAX_UINT32,
        chain=_chain(chain) if chain else None,
        duplicate_ratio=duplicate / _MAX_UINT32,
        reorder_ratio=reorder / _MAX_UINT32,
        limit_packets=limit_packets,
        rate_byte_s=rate_byte_s or _RATES.unpack_from(found[_RATE])[0],
        seed=struct.unpack("=Q", found[_PRNG_SEED])[0] if _PRNG_SEED in found else None,
    )


def read_back(found: NetemSettings, profile: LinkProfile) -> dict[str, Any]:
    """What is in force in the terms of `profile`, the one asked; fields that mean nothing there are its own."""
    chain = found.chain
    has_no_bursts = chain is None and profile.gilbert_elliott is None
    return {
        "delay_s": found.delay_ns * 1e-9,
        "jitter_s": found.jitter_ns * 1e-9,
        "jitter_distribution": profile.jitter_distribution,  # the kernel took its table, and does not give it back
        "loss_ratio": found.mean_loss_ratio,
        "loss_burst_packets": profile.loss_burst_packets if has_no_bursts else _burst_packets(chain),
        "bad_loss_ratio": chain.bad_loss_ratio if chain else profile.bad_loss_ratio,
        "good_loss_ratio": chain.good_loss_ratio if chain else profile.good_loss_ratio,
        "duplicate_ratio": found.duplicate_ratio,
        "reorder_ratio": found.reorder_ratio,
        "limit_packets": found.limit_packets,
        "keeps_order": not found.jitter_ns or found.rate_byte_s > 0,
        "seeded": found.seed is not None,
    }


def _burst_packets(chain: GilbertElliott | None) -> float:
    return 1 / chain.leave_bad_ratio if chain and chain.leave_bad_ratio else 0.0


def _chain(data: bytes) -> GilbertElliott:
    enter, leave, arrive, good_loss = (share / _MAX_UINT32 for share in _CHAIN.unpack_from(data))
    return GilbertElliott(enter, leave, 1 - arrive, good_loss)


def _share(ratio: float) -> int:
    return round(ratio * _MAX_UINT32)


@functools.cache
def distribution_table(name: str) -> bytes:
    """Deviations from the mean, which netem draws from with equal chance; 1.0 is `_TABLE_SCALE`.

    Of mean 0; standard deviation 1, but half the width for "uniform". 16 bits end a tail at four deviations.
    """
    values = (spread_at(name, (index + 0.5) / _TABLE_SIZE) for index in range(_TABLE_SIZE))
    return array("h", [min(round(value * _TABLE_SCALE), _TABLE_MAX) for value in values]).tobytes()


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
