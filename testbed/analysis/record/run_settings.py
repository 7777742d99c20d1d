"""What was asked of runs, as short text by the names in which a user asks, and in what that differs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from testbed.core.spec.run_spec import RunSpec
from testbed.core.spec.topology import Topology
from testbed.core.units import format_rate, format_time

_TOPO = ("topo.rate", "topo.rtt", "topo.loss")
NETWORK = (*_TOPO, "topology")
"""The keys that tell one network from another."""
_PLAIN = (
    *("steps", "epochs", "batch_size", "evaluate_every", "target", "scale", "runtime", "shaper", "tcp", "capture"),
    *("connections", "timeout_s", "data_hash", "start_hash"),
)


def show_time(value: float) -> str:
    return "0 s" if value == 0 else format_time(value)


def asked(spec: RunSpec | None) -> dict[str, str]:
    """The seed left out."""
    if spec is None:
        return {}
    found: dict[str, str] = {}
    for part in ("compressor", "strategy", "transform", "workload", "device"):
        params = getattr(spec, part).first_published()["params"]  # a digest is the same after a module has moved
        found |= {f"{part}.{key}": _short(value) for key, value in _opened(params)}
    found |= {name: _short(getattr(spec, name)) for name in _PLAIN}
    found |= {"transform": spec.transform.name, "accelerator": spec.accelerator}
    found |= {"device": spec.device.name, "dilation": "auto" if spec.auto_dilation else f"{spec.dilation:g}"}
    found |= {name: _digest(getattr(spec, name)) for name in ("events", "background", "topology")}
    wan = [profile for link in spec.topology.wan_links for _, _, profile in link.directions()]
    found["topo.rate"] = _all_of(format_rate(profile.rate_bit_s) for profile in wan)
    found["topo.rtt"] = _all_of(show_time(link.rtt_s) for link in spec.topology.wan_links)
    found["topo.loss"] = _all_of(f"{100 * profile.loss_ratio:g}%" for profile in wan)
    return found


def _opened(params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield parameters by name; of the environment that a script got, each variable."""
    for key, value in params.items():
        if key == "environment" and isinstance(value, Mapping):
            yield from ((f"environment.{name}", text) for name, text in value.items())
        else:
            yield key, value


def differing(settings: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the keys in which settings differ; empty settings, which could not be read, are left out.

    A parameter of a part, such as `device.step_s`, is compared only among those that have the same part; that another
    device has no such parameter is told by `device`. A network's digest is among the keys only where the rest does not
    say all that is different about it.
    """
    found = [one for one in settings if one]
    keys = [key for key in dict.fromkeys(key for one in found for key in one) if _differs(found, key)]
    is_told = len(_values(found, *_TOPO)) == len(_values(found, "topology"))
    return [key for key in keys if key != "topology" or not is_told]


def _differs(settings: Sequence[Mapping[str, str]], key: str) -> bool:
    by_part: dict[str | None, set[str | None]] = defaultdict(set)
    for one in settings:
        by_part[one.get(key.partition(".")[0]) if "." in key else None].add(one.get(key))
    return any(len(values) > 1 for values in by_part.values())


def _values(settings: Sequence[Mapping[str, str]], *keys: str) -> set[tuple[str | None, ...]]:
    return {tuple(one.get(key) for key in keys) for one in settings}


def spoken(settings: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return settings as "density=0.01 steps=20", for behind the compressor's name, without those that are missing."""
    return " ".join(f"{key.removeprefix('compressor.')}={settings[key]}" for key in keys if key in settings)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 24 else f"{text[:16]}…{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _digest(value: Topology | tuple[Any, ...] | None) -> str:
    if not value:
        return "none"
    data = value.to_json() if isinstance(value, Topology) else [dataclasses.asdict(item) for item in value]
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()[:6]


def _all_of(texts: Iterable[str]) -> str:
    found = list(dict.fromkeys(texts))
    return ", ".join(found) if len(found) <= 3 else f"{found[0]}, … ({len(found)})"
