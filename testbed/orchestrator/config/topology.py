"""From a topology's configuration (`_target_` and parameters) to the `Topology` it builds."""

from __future__ import annotations

import inspect
import itertools
import re
import typing
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError, raise_input_faults
from testbed.core.spec.topology import MAX_WORKERS, Topology, name_fault
from testbed.core.user_files.text import listed, shown
from testbed.orchestrator.config.grammar.overrides import first_line, unknown
from testbed.orchestrator.config.trust import builder
from testbed.orchestrator.config.user_files.document import Document, path_in
from testbed.orchestrator.config.user_files.yaml_reader import name_faults, read_yaml
from testbed.orchestrator.emulation.kernel import tc
from testbed.orchestrator.emulation.links.addresses import AddressPlan

TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_MAX_FAULTS = 50
_OWN = ("name", "workers")
"""Parameters of `build` that are not the user's to give under `topo.`."""
_NAMES = ("regions", "region", "centre")
"""Parameters that are no numbers, so that a source still holds when they are changed."""


def build_topology(
    name: str,
    target: str,
    params: Mapping[str, Any],
    workers: int,
    given: Collection[str] = (),
    *,
    emulated: bool = True,
    is_users: bool = False,
) -> Topology:
    """Call the build function `target`.

    Args:
        params: of the function, `name` and `workers` apart.
        given: keys of `params` that come from the user, whose numbers then have no other source.
        emulated: whether a network is to be built of it; otherwise it may be larger than one can be.
        is_users: whether it is in a file of the user.

    Raises:
        InputError: with every fault at once.
    """
    build = builder(target)
    accepted = _accepted(build, target)
    wrong = dict(itertools.islice(_parameter_faults(accepted, params), _MAX_FAULTS))
    values = {key: value for key, value in params.items() if key not in wrong}
    if "source" in accepted.hints and "source" not in given:
        values |= _source(build, params, given)
    own = {key: value for key, value in (("name", name), ("workers", workers)) if key in accepted.hints}
    try:
        topology = build(**own, **values) if accepted.required <= {*own, *values} else None
    except InputError as error:
        raise InputError(*wrong.values(), *error.faults) from None
    except Exception as error:  # a user's own function may raise anything, and a traceback would hide the key at fault
        fault = f"topo={name}: {target} raised {type(error).__name__}: {first_line(error)}"
        raise InputError(*wrong.values(), *([] if wrong else [fault])) from error
    raise_input_faults(wrong.values())
    if not isinstance(topology, Topology):
        raise InputError(f"topo={name}: {target} returned {type(topology).__name__}; it must return a Topology")
    raise_input_faults(_name_faults(topology, is_ours=not is_users and not {"_target_", *_NAMES} & set(given)))
    if emulated:
        AddressPlan(topology)  # refuses more regions and links than there are addresses for
        raise_input_faults(tc.queue_faults(topology))
    return topology


@dataclass(frozen=True)
class _Accepted:
    """What a build function takes."""

    hints: dict[str, Any]
    """The type of each parameter, those of a TypedDict behind `**` among them; None where it has none."""
    required: frozenset[str]
    open_ended: bool
    """Whether it takes any other parameter too."""


def _accepted(build: Callable[..., Any], target: str) -> _Accepted:
    try:
        types = typing.get_type_hints(build) if inspect.isfunction(build) else {}
        parameters = inspect.signature(build).parameters
    except Exception as error:  # types of a user's function may name what is not there
        raise InputError(f"topo._target_={target}: its parameters cannot be read: {first_line(error)}") from error
    hints: dict[str, Any] = {}
    required, open_ended = set(), False
    for key, parameter in parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            several = next((one for one in typing.get_args(types.get(key)) if typing.is_typeddict(one)), None)
            hints |= typing.get_type_hints(several) if several else {}
            open_ended = several is None
        else:
            hints[key] = types.get(key)
            if parameter.default is inspect.Parameter.empty:
                required.add(key)
    return _Accepted(hints, frozenset(required), open_ended)


def _parameter_faults(accepted: _Accepted, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """By key."""
    known = [key for key in accepted.hints if key not in _OWN]
    for key, value in params.items():
        if key in _OWN:
            instead = f"workers={value}" if key == "workers" else "another topo"
            yield key, f"topo.{key}={value}: give {instead} instead"
        elif key not in accepted.hints:
            if not accepted.open_ended:
                yield key, unknown(f"topo.{key}={value}", key, known, "parameter")
        elif (hint := accepted.hints[key]) is not None and not _fits(value, hint):
            yield key, f"topo.{key}={value}: must be {_spoken(hint)}"
    for key in known:
        if key in accepted.required and key not in params:
            yield key, f"topo.{key}: must be given"


def _fits(value: Any, hint: Any) -> bool:
    """Whether the outer type fits. A bare number passes for text, so that the unit's own message is given."""
    options = typing.get_args(hint) if typing.get_origin(hint) not in (tuple, list, dict) else ()
    if options:
        return any(_fits(value, option) for option in options)
    origin = typing.get_origin(hint) or hint
    if origin in (tuple, list):
        return isinstance(value, list | tuple)
    if origin is str:
        return isinstance(value, str | int | float) and not isinstance(value, bool)
    if origin is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return not isinstance(origin, type) or isinstance(value, origin)


def _spoken(hint: Any) -> str:
    text = str(hint)
    if "list[" in text or "tuple[" in text:
        return "a list, as in [a,b]"
    return {"str": "text", "int": "a whole number", "float": "a number"}.get(getattr(hint, "__name__", ""), text)


def _source(build: Callable[..., Any], params: Mapping[str, Any], given: Collection[str]) -> dict[str, str]:
    """The configuration's source, which no longer holds for what the user changed."""
    changed = [f"{key}={params[key]}" for key in sorted(given) if key in params and key not in _NAMES]
    rest = params.get("source", inspect.signature(build).parameters["source"].default)
    if not changed or not rest:
        return {}
    return {"source": f"assumed: given by the user: {', '.join(changed)}; the rest: {rest}"}


def _name_faults(topology: Topology, *, is_ours: bool) -> Iterator[str]:
    """Yield what is wrong with names, and links that would carry nothing."""
    where = f"topology {topology.name}"
    # a node is mostly named after its region, and one line for both is enough
    of_region = {name: fault for name in topology.regions if (fault := name_fault(name, is_ours=is_ours))}
    for node in topology.nodes:
        if node.region not in of_region and (fault := name_fault(node.name, is_ours=is_ours)):
            of_region[node.region] = f"a node of the region {shown(node.region)}: {fault}"
    faults = list(of_region.values())
    yield from (f"{where}: {fault}" for fault in faults)
    for name, count in Counter(link.name for link in topology.links).items():
        if not faults and (fault := name_fault(name, is_link=True)):  # or it is called after its regions
            yield f"{where}: link {name}: {fault}"
        if count > 1:
            yield f"{where}: {count} links are called {name!r}; give each a name of its own"
    first: dict[frozenset[str], str] = {}
    for link in topology.links:
        other = first.setdefault(frozenset((link.a, link.b)), link.name)
        if other != link.name:
            yield (
                f"{where}: link {link.name}: joins {link.a} and {link.b}, as {other} does, so that one of the two would"
                " carry nothing; give one link with the rate of both"
            )


# A user's own topology, given by the path of a YAML file: `topo=./mynet.yaml`.

DESCRIBED = "topologies.described.build"
"""Builds a file that names no `_target_` and lists regions and links instead."""
_LINK_TEXTS = tuple(f"links.*.{key}" for key in ("name", "a", "b", "source", "forward.source", "backward.source"))


@dataclass(frozen=True)
class TopologyFile:
    """A topology file of a user."""

    values: dict[str, Any]
    """Keys and values, as in our own files: `_target_`, its parameters, `run`."""
    document: Document

    def located(self, faults: Iterable[str], given: Collection[str]) -> list[str]:
        """Return faults of this file with their lines; those of keys that the user gave elsewhere are not its own.

        Args:
            given: Keys of `topo` that were given as arguments.
        """
        found = [self._located(fault, given) for fault in faults]
        return list(listed(found, self.document.where, _MAX_FAULTS))

    def _located(self, fault: str, given: Collection[str]) -> str:
        path = path_in(fault, "topo")
        if path and path[0] in given:
            return fault
        line = self._line_of_link(fault) if fault.startswith("topology ") else None
        found = f"{self.document.where}, line {line}: {fault}" if line else next(self.document.located([fault], "topo"))
        is_unplaced = found == fault and (path or fault.startswith("topology "))
        return f"{self.document.where}: {fault}" if is_unplaced else found

    def _line_of_link(self, fault: str) -> int | None:
        match = re.search(r": link (.*?)(?: from |: )", fault)
        links = self.values.get("links")
        for index, link in enumerate(links if match and isinstance(links, list) else ()):
            if isinstance(link, dict) and match and match[1] in (link.get("name"), f"{link.get('a')}-{link.get('b')}"):
                return self.document.line("links", index)
        return None


def read_topology_file(path: Path) -> TopologyFile:
    """Return the content of a user's topology file.

    Raises:
        InputError: It cannot be read, is not a mapping, or cannot lend a run its name.
    """
    where = f"topo={path}"
    faults = list(name_faults(path, where, "topology"))
    try:
        document = read_yaml(path, where)
    except InputError as error:
        raise InputError(*faults, *error.faults) from None
    if not document.keys():
        faults.append(f"{where}, line 1: must hold _target_ and its parameters, or regions and links")
    raise_input_faults(faults)
    values = document.plain(_texts(document.plain(("_target_",))))
    raise_input_faults(f"{document.at('run', *path)}: {fault}" for path, fault in _run_faults(values.get("run", {})))
    if "_target_" not in values:
        values = {**_workers_of(values.get("regions")), **values, "_target_": DESCRIBED}
    return TopologyFile(values, document)


def _run_faults(run: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is wrong with a file's `run`, with where in it."""
    if not isinstance(run, dict):
        yield (), "run: must hold what the topology recommends, as in 'run: {workers: 4}'"
        return
    for key in run:
        if key != "workers":
            yield (key,), unknown(f"run.{key}", key, ("workers",), "key")
    workers = run.get("workers", 1)
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= MAX_WORKERS:
        yield ("workers",), f"run.workers={workers}: must be a whole number from 1 to {MAX_WORKERS}"


def _texts(values: Mapping[str, Any]) -> list[str]:
    """Return where a topology file holds text as written: names, and what its function takes as text."""
    target = str(values.get("_target_", DESCRIBED))
    try:
        hints = _accepted(builder(target), target).hints
    except InputError:  # told once the topology is built
        hints = {}
    texts = ["_target_", *(_LINK_TEXTS if target == DESCRIBED else ())]
    for key, hint in hints.items():
        options = typing.get_args(hint) if typing.get_origin(hint) not in (tuple, list, dict) else (hint,)
        if hint is str:
            texts.append(key)
        elif isinstance(values.get(key), list) and any(_is_list_of_texts(option) for option in options):
            texts.append(f"{key}.*")
    return texts


def _is_list_of_texts(hint: Any) -> bool:
    return typing.get_origin(hint) in (tuple, list) and typing.get_args(hint)[0] is str


def _workers_of(regions: Any) -> dict[str, Any]:
    """Where a file lays down the workers of each region, their sum is the number of workers."""
    counts = list(regions.values()) if isinstance(regions, dict) else []
    total = sum(count for count in counts if isinstance(count, int) and count > 0)
    return {"run": {"workers": min(total, MAX_WORKERS)}} if total else {}
