"""What is sent may follow the links: many compressors choose the route of a bucket by how fast they are.

So a pair is measured over the farthest and fastest links and over the nearest and slowest ones that can be asked for.
Where it sends the same over both, it does over all between. Where it does not, each point is looked for anew with what
is sent over links as they were found, until both agree. They never do where the rate that one route needs is one at
which the other is taken; then the least rate is that at which the route changes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.core.device.profile import Profile
from testbed.core.spec.link_profile import MAX_RATE_BIT_S, MIN_RATE_BIT_S
from testbed.core.spec.run_spec import RunSpec
from testbed.core.spec.topology import with_wan
from testbed.orchestrator.machine.ownership import give_to_caller
from testbed.orchestrator.run.dilation.calibration import Calibration, repeated

_ALIKE = 0.05
"""Of the bytes of a step: payloads that follow the data differ a little from one measurement to the next."""
_NEAR = 1.05
"""Of rates between which what is sent changes."""

Tell = Callable[[str], None]
Look = Callable[[Sequence[Calibration], float, float | None], dict[str, Any]]
"""The point at a round trip by these profiles, at a rate if one is given."""


@dataclass(frozen=True)
class Measured:
    far: list[Calibration]
    """With what is sent over the farthest and fastest links."""
    near: list[Calibration] | None
    """Over the nearest and slowest ones; None where it is the same."""


def measured(spec: RunSpec, rtts_s: Sequence[float], repeats: int, tell: Tell) -> Measured:
    """
    Args:
        repeats: measurements in all; two at least are made.

    Raises:
        InputError: the device cannot tell.
    """
    far = _over(spec, MAX_RATE_BIT_S, max(rtts_s), tell)
    near = _over(spec, MIN_RATE_BIT_S, min(rtts_s), tell)
    found = [far, near, *repeated(spec, max(0, repeats - 2), tell, give_to_caller)]
    if all(_sends_alike(one, far) for one in found):
        return Measured(found, None)
    return Measured([_sending(one, far) for one in found], [_sending(one, near) for one in found])


def settled(spec: RunSpec, near: Sequence[Calibration], rtt_s: float, look: Look, tell: Tell) -> dict[str, Any]:
    """The point at a round trip, with what is sent over its own links.

    Args:
        near: with what is sent over the slowest links. It begins with them, since where they suffice with that, none
            that is slower does.
    """
    used, point = near, look(near, rtt_s, None)
    before: list[_Step] = []
    while True:
        here = _over(spec, _rate(point), rtt_s, tell)
        if _sends_alike(here, used[0]):
            return point
        last = _Step(used, _rate(point))
        again = next((one for one in before if _sends_alike(here, one.profiles[0])), None)
        if again is not None:
            low, high = sorted((again, last), key=lambda one: one.rate_bit_s)
            # what is sent at the higher rate is what needs no more than the lower one
            least_bit_s = _changing(spec, rtt_s, low.rate_bit_s, high.rate_bit_s, low.profiles, tell)
            return look(low.profiles, rtt_s, least_bit_s)
        before.append(last)
        used = [_sending(one, here) for one in near]
        point = look(used, rtt_s, None)


@dataclass(frozen=True)
class _Step:
    profiles: Sequence[Calibration]
    rate_bit_s: float
    """That does with them, though over such links something else is sent."""


def _changing(
    spec: RunSpec, rtt_s: float, low_bit_s: float, high_bit_s: float, above: Sequence[Calibration], tell: Tell
) -> float:
    """The lowest rate found between these two at which what is sent is that of `above`."""
    while high_bit_s > _NEAR * low_bit_s:
        middle = float(f"{math.sqrt(low_bit_s * high_bit_s):.2e}")
        if _sends_alike(_over(spec, middle, rtt_s, tell), above[0]):
            high_bit_s = middle
        else:
            low_bit_s = middle
    return high_bit_s


def _rate(point: dict[str, Any]) -> float:
    found = point["rate_bit_s"]["estimate"]
    return MAX_RATE_BIT_S if found is None else float(found)


def _over(spec: RunSpec, rate_bit_s: float, rtt_s: float, tell: Tell) -> Calibration:
    topology = with_wan(spec.topology, rate_bit_s, rtt_s)
    (found,) = repeated(dataclasses.replace(spec, topology=topology), 1, tell, give_to_caller)
    return found


def _sends_alike(one: Calibration, other: Calibration) -> bool:
    ours, theirs = (_last(found.cpu).collectives for found in (one, other))
    if [c.kind for c in ours] != [c.kind for c in theirs]:
        return False
    sent, wanted = (sum(c.share * c.size_bytes for c in found) for found in (ours, theirs))
    return abs(sent - wanted) <= _ALIKE * max(sent, wanted)


def _sending(one: Calibration, like: Calibration) -> Calibration:
    """Its layers, and what the other sends."""
    return Calibration(_with_codec(one.cpu, like.cpu), _with_codec(one.device, like.device))


def _with_codec(profile: Profile, other: Profile) -> Profile:
    found = profile.with_codec_of(other)
    if profile.switched is not None and other.switched is not None:
        found = dataclasses.replace(found, switched=profile.switched.with_codec_of(other.switched))
    return found


def _last(profile: Profile) -> Profile:
    """Once the model has changed, where it does."""
    return profile.switched or profile
