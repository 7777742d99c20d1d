"""Rate, RTT, delay, jitter and loss as a user writes them for a link, to the fields of its directions."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from testbed.core.spec.link_profile import LinkProfile
from testbed.core.spec.topology import Link
from testbed.core.units import parse_rate_bit_s, parse_ratio, parse_time_s
from testbed.core.user_files.tables import is_number, number_of

FIELDS = {"rate": "rate_bit_s", "rtt": "delay_s", "delay": "delay_s", "jitter": "jitter_s", "loss": "loss_ratio"}
"""By the user's word; `rtt` is of both directions together, `delay` of one way."""
_SHARE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")


def faults_of_keys(keys: Iterable[str], *, one_way: bool) -> list[str]:
    """Which of them cannot stand together."""
    found = []
    if "rtt" in keys and "delay" in keys:
        found.append("rtt and delay exclude each other; delay is one way")
    if "rtt" in keys and one_way:
        found.append("rtt is of both directions together; with from give delay (one way)")
    return found


def fields(texts: Mapping[str, Any], link: Link, sources: Iterable[str], *, bare: bool) -> dict[str, dict[str, float]]:
    """By the source of a direction: `LinkProfile` fields with new values, absolute.

    A percentage is of the topology's own value, but for loss, where it is the loss. An RTT is divided in the
    proportion of the topology's own delays.

    Args:
        texts: by the keys of `FIELDS`.
        bare: numbers without a unit are in base units.

    Raises:
        ValueError: names the key.
    """
    amounts = {key: _amount(key, text, bare) for key, text in texts.items()}
    found: dict[str, dict[str, float]] = {}
    for source in sources:
        if found and link.forward is link.backward:
            found[source] = dict(next(iter(found.values())))
            continue
        own = link.forward if source == link.a else link.backward
        found[source] = {FIELDS[key]: _absolute(key, *amount, own, link) for key, amount in amounts.items()}
    return found


def own_fields(names: Iterable[str], link: Link, sources: Iterable[str]) -> dict[str, dict[str, float]]:
    """What the topology says, for the fields `names`."""
    own = {start: profile for start, _, profile in link.directions()}
    return {source: {name: getattr(own[source], name) for name in names} for source in sources}


def _absolute(key: str, number: float, is_share: bool, own: LinkProfile, link: Link) -> float:
    if is_share:
        own_value: float = getattr(own, FIELDS[key])
        if not own_value and number:
            raise ValueError(f"{key}: {number:g}% is of the topology's own {key}, which is 0; give it with a unit")
        return own_value * number / 100
    if key != "rtt":
        return number
    return number * (own.delay_s / link.rtt_s if link.rtt_s else 0.5)


def _amount(key: str, text: Any, bare: bool) -> tuple[float, bool]:
    """Return a value in the base unit, or a percentage of the topology's own one and True."""
    try:
        if bare and key != "loss" and is_number(text):
            return number_of(text), False
        return _recurring(key, text) if isinstance(text, str) else _read(key, text)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _read(key: str, text: Any) -> tuple[float, bool]:
    if key == "loss":
        return parse_ratio(text), False
    if isinstance(text, str) and (share := _SHARE.fullmatch(text)):
        return float(share[1]), True
    return (parse_rate_bit_s(text) if key == "rate" else parse_time_s(text)), False


_recurring = functools.lru_cache(maxsize=1 << 16)(_read)
"""Texts of traces recur, in both directions of a link at least."""
