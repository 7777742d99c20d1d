"""Parameters of topologies: text with units in, base units out, and every error kept until all have been read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from testbed.core.errors import InputError
from testbed.core.kinds import Choice, Kind, ListOf, Text, Whole
from testbed.core.parameters import Duration, NotNegative, Rate, Ratio, kind_in
from testbed.core.spec.link_profile import JITTER_DISTRIBUTIONS, MAX_MTU_BYTES, MIN_MTU_BYTES, MIN_RATE_BIT_S
from testbed.core.spec.topology import name_fault, symmetric, workers_per_region
from testbed.core.units import parse_rate_bit_s, parse_ratio, parse_size_bytes, parse_time_s

MAX_REGIONS = 256
"""Largest number of regions of a family, of which a full mesh has 32,640 links."""
_MAX_FAULTS = 50
PACKET_BYTES = 1514
"""Bytes of an Ethernet frame of 1500 bytes of payload, without its checksum: the unit in which a queue counts."""

_MULTIPLE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*(BDP|packets?)\s*")


@dataclass(frozen=True)
class _Queue(Kind):
    """What `parse_queue` reads."""

    type_text = "queue as text"
    values_text = "such as 1 BDP, 1000 packets (of 1514 bytes), 256 kB, or {burst: 32 kB, latency: 50 ms} as tbf's"

    def faults(self, name: str, value: object, *, null: bool = False) -> Iterator[str]:
        try:
            parse_queue(value, 1e9, 1.0)
        except ValueError as error:
            yield f"{name}: {error}"


@dataclass(frozen=True)
class _OrEmpty(Kind):
    """Values of another kind, or an empty text."""

    kind: Kind

    @property
    def type_text(self) -> str:
        return self.kind.type_text

    values_text = "or empty"

    def allows(self, value: object) -> bool:
        return value == "" or self.kind.allows(value)


Queue = Annotated[str | dict[str, str], _Queue()]
LanQueue = Annotated[str | dict[str, str], _OrEmpty(_Queue())]
Cap = Annotated[str, _OrEmpty(kind_in(Rate))]
Mtu = Annotated[int, Whole(MIN_MTU_BYTES, MAX_MTU_BYTES, unit="bytes")]
Name = Annotated[str, Text()]
Names = Annotated[tuple[str, ...] | list[str], ListOf(Text(), "a list of names")]


class Impairments(TypedDict, total=False):
    """Effects of a WAN link on packets apart from delay: the same parameters in every family, each way."""

    jitter: Duration
    """Spread around the one-way delay, at most the delay."""
    jitter_distribution: Annotated[str, Choice(JITTER_DISTRIBUTIONS)]
    """Distribution; jitter: half-width (uniform) or standard deviation."""
    loss: Ratio
    """Mean share of lost packets."""
    loss_burst_packets: NotNegative
    """Mean length of the bad state, in packets (Gilbert-Elliott); 0: independent losses."""
    bad_loss: Ratio
    """Share of packets lost while in the bad state."""
    good_loss: Ratio
    """Share of packets lost while in the good state."""
    duplicate: Ratio
    """Share of packets duplicated."""
    reorder: Ratio
    """Share of packets that overtake all others."""
    queue: Queue
    """Queue before the rate limit; BDP: of this link."""


_FIELDS = {
    "loss": "loss_ratio",
    "bad_loss": "bad_loss_ratio",
    "good_loss": "good_loss_ratio",
    "duplicate": "duplicate_ratio",
    "reorder": "reorder_ratio",
}


class Parameters:
    """Reader of values. It keeps errors in `faults`, and returns a harmless value for one that cannot be read."""

    def __init__(self, *faults: str) -> None:
        self.faults: list[str] = []
        self._told: set[str] = set()
        self.add(faults)

    def add(self, faults: Iterable[str]) -> None:
        """Keep errors, each once: a network of many links has the same ones for each.

        Raises:
            InputError: There are so many that reading ends here.
        """
        for fault in faults:
            if fault not in self._told:
                self._told.add(fault)
                self.faults.append(fault)
        if len(self.faults) > _MAX_FAULTS:
            self.raise_faults()

    def raise_faults(self) -> None:
        """Raise if there is an error.

        Raises:
            InputError: There are errors; all that were found so far.
        """
        if self.faults:
            raise InputError(*self.faults)

    def rate(self, key: str, value: Any) -> float:
        return self._read(key, value, parse_rate_bit_s, MIN_RATE_BIT_S)

    def cap(self, rate: str) -> float | None:
        """Return the highest rate of a WAN link in bits per second, or None if no readable one was given."""
        before = len(self.faults)
        cap_bit_s = self.rate("topo.rate", rate) if rate else None
        return cap_bit_s if len(self.faults) == before else None

    def time(self, key: str, value: Any) -> float:
        return self._read(key, value, parse_time_s, 0.0)

    def ratio(self, key: str, value: Any) -> float:
        return self._read(key, value, parse_ratio, 0.0)

    def number(self, key: str, value: Any) -> float:
        return self._read(key, value, _number, 0.0)

    def _read(self, key: str, value: Any, parse: Callable[[Any], float], stand_in: float) -> float:
        try:
            return parse(value)
        except ValueError as error:
            self.add([f"{key}: {error}"])
            return stand_in

    def impairments(self, values: Impairments, rate_bit_s: float, rtt_s: float, where: str = "topo") -> dict[str, Any]:
        """Return fields of `LinkProfile`; it has defaults for those that are not given."""
        given: dict[str, Any] = dict(values)
        fields: dict[str, Any] = {
            field: self.ratio(f"{where}.{key}", given[key]) for key, field in _FIELDS.items() if key in given
        }
        if "jitter" in given:
            fields["jitter_s"] = self.time(f"{where}.jitter", given["jitter"])
        if "jitter_distribution" in given:
            fields["jitter_distribution"] = str(given["jitter_distribution"])
        if "loss_burst_packets" in given:
            fields["loss_burst_packets"] = self.number(f"{where}.loss_burst_packets", given["loss_burst_packets"])
        if "queue" in given:
            fields |= self.queue(f"{where}.queue", given["queue"], rate_bit_s, rtt_s)
        return fields

    def queue(self, key: str, value: Any, rate_bit_s: float, rtt_s: float) -> dict[str, int]:
        """Return the fields of `LinkProfile` that a queue sets."""
        try:
            limit_bytes, burst_bytes = parse_queue(value, rate_bit_s, rtt_s)
        except ValueError as error:
            self.add([f"{key}: {error}"])
            return {}
        return {"limit_bytes": limit_bytes, **({"burst_bytes": burst_bytes} if burst_bytes else {})}

    def wan(self, rate: str, rtt: str, source: str, values: Impairments, *, prefix: str = "") -> dict[str, Any]:
        """Return the parameters of WAN links that are all alike, for `symmetric`; errors are reported once.

        Args:
            prefix: Beginning of the keys of rate and round trip.
        """
        rate_bit_s = self.rate(f"topo.{prefix}rate", rate)
        rtt_s = self.time(f"topo.{prefix}rtt", rtt)
        fields = self.impairments(values, rate_bit_s, rtt_s)
        profile = {"rate_bit_s": rate_bit_s, "rtt_s": rtt_s, "source": with_impairments(source, values), **fields}
        self.add(
            symmetric("", "a", "b", wan=True, **profile).forward.faults(
                f"topo, {prefix or 'WAN '}links".replace("_", " ")
            )
        )
        return profile

    def lan_rate(self, rate: str) -> float:
        rate_bit_s = self.rate("topo.lan_rate", rate)
        access = symmetric("", "a", "b", wan=False, rate_bit_s=rate_bit_s, rtt_s=0.0, source="parameter")
        self.add(access.forward.faults("topo.lan_rate"))
        return rate_bit_s

    def regions(self, regions: Sequence[str], *, key: str = "topo.regions") -> tuple[str, ...]:
        """Return the regions, at least one and each once.

        Raises:
            InputError: There are too many; with all errors so far.
        """
        names = tuple(str(region) for region in regions)
        if not names or len(set(names)) != len(names):
            self.add([f"{key}={list(names)}: must be one name or more, all different"])
        self.names(key, names)
        if len(names) > MAX_REGIONS:
            self.add([f"{key}: has {len(names)} names; must be at most {MAX_REGIONS}, give fewer"])
            self.raise_faults()  # links between so many would take long
        return names

    def names(self, key: str, names: Iterable[str], *, are_links: bool = False) -> None:
        """Keep an error for each name that breaks the rule for names of regions, or of links."""
        self.add(f"{key}: {fault}" for name in names if (fault := name_fault(name, is_link=are_links)))

    def placed(self, workers: int, regions: Sequence[str]) -> dict[str, int]:
        """Return the number of workers of each region, in blocks."""
        try:
            return dict(zip(regions, workers_per_region(workers, len(regions)), strict=True))
        except ValueError as error:
            if regions:
                self.add([str(error)])
            return dict.fromkeys(regions, 1)


def with_impairments(source: str, values: Impairments) -> str:
    """Return the source of a rate and a round trip, with words for impairments, which it does not cover."""
    asked = ", ".join(f"{key}={value}" for key, value in values.items())
    return f"{source}; as asked: {asked}" if asked else source


def parse_queue(value: Any, rate_bit_s: float, rtt_s: float) -> tuple[int, int]:
    """Return the bytes of a queue and of the bucket of its rate limit; 0 leaves either to the shaper.

    A queue of latency and burst is tbf's: it holds what the rate carries in that time, and a burst.

    >>> parse_queue({"burst": "32 kB", "latency": "50 ms"}, 200e6, 0)
    (1282000, 32000)

    Raises:
        ValueError: It cannot be read, or is empty.
    """
    if not isinstance(value, Mapping):
        return parse_queue_bytes(str(value), rate_bit_s, rtt_s), 0
    if set(value) != {"burst", "latency"}:
        raise ValueError(f"queue {dict(value)}: as tbf's it has burst and latency: {{burst: 32 kB, latency: 50 ms}}")
    burst_bytes, latency_s = parse_size_bytes(value["burst"]), parse_time_s(value["latency"])
    if burst_bytes < PACKET_BYTES or latency_s <= 0:
        raise ValueError(f"queue {dict(value)}: burst must hold a packet of {PACKET_BYTES} bytes, latency be above 0")
    return math.ceil(rate_bit_s / 8 * latency_s) + burst_bytes, burst_bytes


def parse_queue_bytes(text: str | int | float, rate_bit_s: float, rtt_s: float) -> int:
    """Return the bytes of a queue; 0 is one bandwidth-delay product as the shaper knows it, at least four bursts.

    >>> parse_queue_bytes("2.5 BDP", 100e6, 0.080), parse_queue_bytes("1000 packets", 0, 0)
    (2500000, 1514000)

    Raises:
        ValueError: The text cannot be read, or is empty.
    """
    match = _MULTIPLE.fullmatch(str(text))
    if match is None:
        try:
            size_bytes = parse_size_bytes(text)
        except ValueError as error:
            raise ValueError(f"queue {text!r}: not such as '1 BDP', '1000 packets' or '256 kB'; {error}") from None
    elif match[2] == "BDP":
        if float(match[1]) == 1:
            return 0
        size_bytes = math.ceil(float(match[1]) * rate_bit_s / 8 * rtt_s)
        if not rtt_s:
            raise ValueError(f"queue {text!r}: a link without delay has no such product; give packets or bytes")
    else:
        size_bytes = round(float(match[1]) * PACKET_BYTES)
    if size_bytes < PACKET_BYTES:
        raise ValueError(f"queue {text!r}: {size_bytes} bytes do not hold one packet of {PACKET_BYTES}")
    return size_bytes


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)
