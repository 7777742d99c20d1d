"""The key `background`: from what a user writes to `Background` of each direction.

background=oregon-virginia:30%                          both ways
background=[oregon-virginia:30%,{link: tokyo-virginia, from: tokyo, load: 50%, mean_flow: 100 kB, seed: 7}]
background=./evening.yaml                               a file that holds such a list
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.core.errors import raise_input_faults
from testbed.core.spec.schedule import Background
from testbed.core.spec.topology import Topology
from testbed.core.units import parse_size_bytes, require_percentage
from testbed.core.user_files.text import listed
from testbed.orchestrator.config.grammar.overrides import unknown
from testbed.orchestrator.config.user_files.yaml_reader import is_path, read_yaml

KEYS = ("link", "from", "load", "mean_flow", "seed")
_LOAD = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*%\s*")
_SEED_END = 2**32
_MAX_ENTRIES, _MAX_FAULTS = 1000, 50
_TEXTS = ("link", "from", "*.link", "*.from")
"""Where a file has names, which are text as written."""


def compile_background(value: Any, topology: Topology, seed: int = 0) -> tuple[Background, ...]:
    """Return the traffic that the key's value asks for; null is none.

    Args:
        value: One entry, a list of them, or the path of a YAML file that holds them.
        seed: Seed of entries that give none: the run's.

    Raises:
        InputError: The value is wrong; every error at once, those of a file with their lines.
    """
    document = read_yaml(Path(value), f"background={value}") if isinstance(value, str) and is_path(value) else None
    if document is not None:
        value = document.plain(_TEXTS)
    is_list = isinstance(value, list | tuple)
    entries = value if is_list else [] if value is None else [value]
    found: list[Background] = []
    faults: list[str] = []
    for index, entry in enumerate(itertools.islice(entries, _MAX_ENTRIES + 1)):
        for fault in _read(entry, topology, seed, found):
            key = re.search(r": (\w+)=", fault)
            place = (*((index,) if is_list else ()), *((key[1],) if key else ()))
            faults.append(f"{document.at(*place)}: {fault}" if document is not None else fault)
    if len(entries) > _MAX_ENTRIES:
        faults.append(f"background: has more than {_MAX_ENTRIES} entries; give one for a direction")
    directions = [(traffic.link, traffic.source) for traffic in found]
    for link, source in dict.fromkeys(d for d in directions if directions.count(d) > 1):
        faults.append(
            f"background: link {link} from {source}: given {directions.count((link, source))} times; give it once"
        )
    raise_input_faults(listed(list(dict.fromkeys(faults)), "background", _MAX_FAULTS))
    return tuple(found)


def _read(entry: Any, topology: Topology, seed: int, found: list[Background]) -> Iterator[str]:
    """Appends what an entry asks for; yields its faults."""
    fields: dict[str, Any] = {}
    faults = list(_fields(entry, fields))
    yield from faults
    if faults:
        return
    ends_of_link = {link.name: (link.a, link.b) for link in topology.wan_links}
    link, load, source = fields["link"], fields["load"], fields.get("from")
    known = {key: fields[key] for key in ("mean_flow_bytes",) if key in fields}
    ends = (source,) if source is not None else ends_of_link.get(link, ("",))
    asked = [Background(link=link, source=end, load_ratio=load, seed=fields.get("seed", seed), **known) for end in ends]
    own_faults = list(asked[0].faults(ends_of_link))  # the other direction has the same numbers
    yield from own_faults
    if not own_faults:
        found += asked


def _fields(entry: Any, fields: dict[str, Any]) -> Iterator[str]:
    """Fills `fields` in base units; yields what does not fit."""
    if isinstance(entry, str):
        link, separator, load = entry.rpartition(":")
        if not separator or not link.strip():
            yield f"background={entry}: not of the form LINK:LOAD, such as oregon-virginia:30%"
            return
        entry = {"link": link.strip(), "load": load}
    if not isinstance(entry, Mapping):
        yield f"background={entry}: must be LINK:LOAD or a mapping with {', '.join(KEYS)}"
        return
    where = f"background: link {entry.get('link')}"
    for key in entry:
        if key not in KEYS:
            yield unknown(f"{where}: {key}={entry[key]}", str(key), KEYS, "key")
    for key in ("link", "load"):
        if entry.get(key) is None:
            yield f"{where}: {key} must be given"
    for key in KEYS:
        if entry.get(key) is not None:
            name, read = _READERS[key]
            try:
                fields[name] = read(entry[key])
            except ValueError as error:
                yield f"{where}: {key}={entry[key]}: {error}"


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a name")
    return value


def _load(value: Any) -> float:
    """As a ratio; more than the whole capacity can be asked for, so it is not `units.parse_ratio`'s."""
    require_percentage(value)
    match = _LOAD.fullmatch(str(value))
    if match is None:
        raise ValueError("must be a share of the link's capacity, such as 30%")
    ratio = float(match[1]) * 0.01
    if not math.isfinite(ratio):
        raise ValueError("is too large")
    return ratio


def _seed(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _SEED_END:
        raise ValueError("must be a whole number from 0 to 2**32 - 1")
    return value


_READERS: dict[str, tuple[str, Any]] = {
    "link": ("link", _name),
    "from": ("from", _name),
    "load": ("load", _load),
    "mean_flow": ("mean_flow_bytes", parse_size_bytes),
    "seed": ("seed", _seed),
}
