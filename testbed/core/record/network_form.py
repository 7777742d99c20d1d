"""Form of `network.json`, as far as programs look into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.core.spec.typed import fits

_Values = dict[str, str | bool | float | None] | None
_FILE: dict[str, Any] = {"shaper": str | None, "tcp": str | None, "links": list[dict[str, object]] | None}
_LINK: dict[str, Any] = {
    **dict.fromkeys(("name", "from", "to"), str),
    "wan": bool,
    **dict.fromkeys(("asked", "measured"), _Values),
    "read_back": dict[str, object] | None,
    "measurements": list[dict[str, object]] | None,
}


def network_fault(network: Mapping[str, Any]) -> str | None:
    """Return why the file cannot be read, or None. What it lacks counts as null."""
    wrong = [key for key, form in _FILE.items() if not fits(network.get(key), form)]
    for link in [] if wrong else network.get("links") or []:
        wrong += [f"link's {key}" for key, form in _LINK.items() if not fits(link.get(key), form)]
    return f"its {wrong[0]} is none" if wrong else None
