"""Links that rounds are composed with: a run's own, or what a user gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.analysis.composition.server_model import Uplinks
from testbed.analysis.record.record import Record
from testbed.core.errors import InputError
from testbed.core.spec.paths import Path, Paths, delay_s
from testbed.core.spec.topology import Topology
from testbed.core.units import parse_rate_bit_s, parse_time_s

SERVER = 0
"""Its rank."""
_FLAGS = {"rate_bit_s": "--rate", "server_rate_bit_s": "--server-rate", "delay_s": "--delay"}
_DIGITS = 12
"""Of seconds, so that sums in another order are alike."""


@dataclass(frozen=True, kw_only=True)
class Star:
    """Links of clients and of the server, each way."""

    down: Uplinks
    up: Uplinks

    def to_json(self) -> dict[str, float]:
        return {
            f"{way}_{name}": getattr(links, name)
            for way, links in (("down", self.down), ("up", self.up))
            for name in ("rate_bit_s", "server_rate_bit_s", "delay_s")
        }


def star_of(
    topology: Topology,
    *,
    rate_bit_s: float | None = None,
    server_rate_bit_s: float | None = None,
    delay_s: float | None = None,
) -> Star:
    """The topology's links, with what is given in place of theirs.

    What the paths of all workers share is the server's link, all else a client's own.

    Args:
        delay_s: one way, from a client to the server.

    Raises:
        InputError: workers' links are not alike, so that no client's can be taken from them; or a number is wrong.
    """
    paths, workers = Paths(topology), range(1, len(topology.nodes))
    given = {"rate_bit_s": rate_bit_s, "server_rate_bit_s": server_rate_bit_s, "delay_s": delay_s}
    ways = {
        "down": _hops([paths.between(SERVER, rank) for rank in workers]),
        "up": _hops([paths.between(rank, SERVER)[::-1] for rank in workers]),
    }
    known = {
        way: {key: [value] if value is not None else _of_all(hops, key) for key, value in given.items()}
        for way, hops in ways.items()
    }
    faults = [
        f"workers' links of {topology.name} are not alike, {way} from {min(values):g} to {max(values):g}:"
        f" give {_FLAGS[key]}"
        for way, of_key in known.items()
        for key, values in of_key.items()
        if len(values) > 1
    ]
    if faults:
        raise InputError(*faults)
    try:
        return Star(**{way: Uplinks(**{key: value for key, (value,) in of.items()}) for way, of in known.items()})
    except ValueError as error:
        raise InputError(*dict.fromkeys(str(error).splitlines())) from error


def star_for(record: Record, *, rate: str | None, server_rate: str | None, delay: str | None) -> Star:
    """`star_of` the run, with what a user has written.

    Raises:
        InputError: with all that cannot be read; as of `star_of`; or the run has no topology.
    """
    values: dict[str, float] = {}
    faults: list[str] = []
    asked = zip(_FLAGS, (rate, server_rate, delay), (parse_rate_bit_s, parse_rate_bit_s, parse_time_s), strict=True)
    for key, text, parse in asked:
        if text is not None:
            try:
                values[key] = parse(text)
            except ValueError as error:
                faults.append(f"{_FLAGS[key]}: {error}")
    if faults:
        raise InputError(*faults)
    if record.spec is None:
        raise InputError(f"{record.run_id}: has no spec that could be read; give another run")
    return star_of(record.spec.topology, **values)


def _hops(paths: Sequence[Path]) -> list[tuple[Path, Path]]:
    """(the server's part, the client's) of each path, which begins at the server. With one client nothing tells where
    one ends: half each."""
    shared = set.intersection(*map(set, paths)) if len(paths) > 1 else set(paths[0][: len(paths[0]) // 2])
    return [
        (tuple(link for link in path if link in shared), tuple(link for link in path if link not in shared))
        for path in paths
    ]


def _of_all(hops: Sequence[tuple[Path, Path]], key: str) -> list[float]:
    """The different values there are; one, where all are alike."""
    if key == "delay_s":
        return sorted({round(delay_s((*server, *client)), _DIGITS) for server, client in hops})
    parts = (server if key == "server_rate_bit_s" else client for server, client in hops)
    return sorted({min(link.profile.rate_bit_s for link in part) for part in parts})
