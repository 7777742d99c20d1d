"""`python -m testbed.worker describe`: plug-ins as they declare themselves, for `longhaul show` and completion.

Everything is asked of the classes: parameters of `testbed.core.declaration`, traits of the built objects, and of the
checks that a run makes which parts exclude each other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NoReturn, TextIO

from torch import Tensor

from compressors.base.compressor import Compressor
from testbed.core.declaration import described
from testbed.core.device.device import Device
from testbed.core.errors import EXIT_COMPLETED, InputError
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.worker.interfaces import strategy_capabilities, transform_capabilities, workload_capabilities
from testbed.worker.interfaces.strategy import Strategy
from testbed.worker.interfaces.transform import Transform
from testbed.worker.interfaces.workload import Workload
from testbed.worker.plugins.factory import build, load_class
from testbed.worker.training.parts import KINDS, combination_faults

PAIRS = (
    ("strategy", "compressor"),
    ("strategy", "workload"),
    ("strategy", "transform"),
    ("compressor", "transform"),
    ("workload", "transform"),
    ("workload", "device"),
)
"""Groups whose members may exclude each other."""
_USUAL = {"workload": "digits", "strategy": "ddp", "compressor": "none", "device": "native", "transform": "none"}
"""Partners with which others are tried first."""
Parts = Mapping[str, Mapping[str, Part]]
"""Parts by group and name; of `Built` their objects, where no required parameter is missing."""
Built = Mapping[str, Mapping[str, Any]]
_TITLE = re.compile(r'"[^"]{12,}"')


def describe(source: TextIO, sink: TextIO) -> int:
    """Write the descriptions of plug-ins as JSON, and return the exit status.

    Read {"spec": `RunSpec.to_json()`, "parts": {group: [part, ...]}, "asked": {group: [name, ...]}}, and write
    {"faults", "parts": {group: {name: description}}} of those that are asked for. The spec lends its topology and
    settings. A part that lacks a required parameter is described without traits, one that cannot be built by its
    "faults".
    """
    question = json.load(source)
    parts = {group: {one["name"]: Part(**one) for one in several} for group, several in question["parts"].items()}
    with _untrained():
        found = _described(RunSpec.from_json(question["spec"]), parts, question["asked"])
    json.dump({"faults": [], "parts": found}, sink, allow_nan=False)
    sink.write("\n")
    return EXIT_COMPLETED


def _described(spec: RunSpec, parts: Parts, asked: Mapping[str, list[str]]) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    built: dict[str, dict[str, Any]] = {group: {} for group in parts}
    for group, part in ((group, part) for group, members in parts.items() for part in members.values()):
        try:
            cls = load_class(group, part, KINDS[group])
            parameters = described(cls, part.params)
            if not any(one["required"] for one in parameters):
                made = built[group][part.name] = build(group, part, KINDS[group])
                if group == "workload":
                    made.model = functools.cache(made.model)  # several checks look at it
            one = _description(group, part, cls, built[group].get(part.name)) | {"parameters": parameters}
        except InputError as error:
            one = {"name": part.name, "target": part.target, "faults": list(error.faults)}
        if part.name in asked.get(group, ()):
            found.setdefault(group, {})[part.name] = one
    if not all(name in built.get(group, {}) for group, name in _USUAL.items()):
        return found  # there is nothing to check the others with
    checks = _Checks(spec, parts, built)
    for key, name in ((key, name) for key, members in found.items() for name in members if name in built[key]):
        choice, faults = checks.base((key, name))
        partners = {one: chosen for one, chosen in choice.items() if one != key and chosen != _USUAL[one]}
        found[key][name] |= {"partners": partners, "refused": sorted(faults)}
    for group, name, excluded in _exclusions(checks, built, asked):
        found[group][name]["excludes"].append(excluded)
    return found


def _description(group: str, part: Part, cls: type, made: Any) -> dict[str, Any]:
    what, about, source = texts(inspect.getdoc(cls) or "")
    return {
        "name": part.name,
        "target": part.target,
        "what": what,
        "about": about,
        "source": source,
        "traits": {} if made is None else dict(_TRAITS[group](made)),
        "capabilities": dict(_capabilities(cls, group)),
        "excludes": [],
        "partners": {},
        "refused": [],
    }


def texts(docstring: str) -> tuple[str, str, str]:
    """Return a docstring's first paragraph on one line, the rest without sections, and the sentence with a title."""
    body = re.split(r"^(?:Args|Raises|Returns|Attributes):$", docstring, maxsplit=1, flags=re.MULTILINE)[0].strip()
    what, _, about = body.partition("\n\n")
    sentences = re.split(r"(?<=[.;])\s+(?=[A-Z(])", " ".join(about.split()))
    # a title may hold what looks like the end of a sentence
    joined = (" ".join(sentences[: end + 1]) for end in range(len(sentences)))
    head = next((text for text in joined if _TITLE.search(text) and text.count('"') % 2 == 0), "")
    begin = max((head.rfind(mark, 0, head.find('"')) for mark in (". ", "; ")), default=-1)
    source = head[begin + 2 :] if begin > 60 else head
    return " ".join(what.split()).rstrip("."), about.strip(), source.rstrip(".;")


def _capabilities(cls: type, group: str) -> Iterator[tuple[str, str]]:
    """Yield the names of a class's capabilities, and what each means."""
    for name, capability in vars(_CAPABILITIES[group]).items() if group in _CAPABILITIES else ():
        methods = _own_methods(capability)
        if methods and all(hasattr(cls, one) for one in methods):
            first = (inspect.getdoc(capability) or "").split(".")[0].split(";")[0]
            yield name, re.sub(rf"^{group.capitalize()} (?:that |with |whose )?", "", " ".join(first.split()))


def _own_methods(capability: Any) -> list[str]:
    is_protocol = inspect.isclass(capability) and getattr(capability, "_is_protocol", False)
    return [one for one in vars(capability) if not one.startswith("_")] if is_protocol else []


def _exclusions(
    checks: _Checks, built: Built, asked: Mapping[str, list[str]]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (group, name, {"group", "names", "because"}) for partners that a run with the part refuses."""
    for one, other in PAIRS:
        for name in (name for name in asked.get(one, ()) if name in built[one]):
            why = {partner: checks.refusal((one, name), (other, partner)) for partner in built[other]}
            yield from ((one, name, found) for found in _by_reason(other, why, built[other]))
        for name in (name for name in asked.get(other, ()) if name in built[other]):
            why = {partner: checks.refusal((one, partner), (other, name)) for partner in built[one]}
            yield from ((other, name, found) for found in _by_reason(one, why, built[one]))


def _by_reason(group: str, why: Mapping[str, str | None], built: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the partners that are refused for one reason, which says NAME for each of several."""
    reasons: dict[str, list[str]] = {}
    for partner, fault in why.items():
        if fault is not None:
            said = fault.removeprefix(f"{group}={partner}: ").replace(f"{group}={partner}", f"{group}=NAME")
            reasons.setdefault(re.sub(rf"\b{type(built[partner]).__name__}\b", "NAME", said), []).append(partner)
    for said, partners in reasons.items():
        alone = str(why[partners[0]]).removeprefix(f"{group}={partners[0]}: ")
        yield {"group": group, "names": sorted(partners), "because": said if len(partners) > 1 else alone}


class _Checks:
    """The checks of a run, asked about two parts, each with the partners that suit it best."""

    def __init__(self, spec: RunSpec, parts: Parts, built: Built) -> None:
        self._spec, self._parts, self._built = spec, parts, built
        self._bases: dict[tuple[str, str], tuple[dict[str, str], set[str]]] = {}
        self._refusals: dict[tuple[tuple[str, str], tuple[str, str]], str | None] = {}

    def refusal(self, one: tuple[str, str], other: tuple[str, str]) -> str | None:
        """Return why two parts, as (group, name), cannot be used together; None if they can.

        What a part is refused for with the partners that suit it best depends on something else, such as the topology.
        """
        if (one, other) not in self._refusals:
            bases = self.base(one), self.base(other)
            common = bases[0][1] | bases[1][1]
            tried = [self._faults({**base, one[0]: one[1], other[0]: other[1]}) for base, _ in bases]
            left = [[fault for fault in faults if fault not in common] for faults in tried]
            fewest = min(left, key=len)
            self._refusals[one, other] = fewest[0] if fewest else None
        return self._refusals[one, other]

    def base(self, part: tuple[str, str]) -> tuple[dict[str, str], set[str]]:
        """Return the choice that suits a part best, by group, and what is wrong with it even so."""
        if part not in self._bases:
            group, usual = part[0], {**_USUAL, part[0]: part[1]}
            partners = {one for pair in PAIRS if group in pair for one in pair} - {group}
            tried = [usual, *({**usual, one: name} for one in sorted(partners) for name in self._general(one))]
            best, least = usual, self._faults(usual)
            for choice in tried[1:] if least else ():
                if len(faults := self._faults(choice)) < len(least):
                    best, least = choice, faults
            self._bases[part] = best, set(least)
        return self._bases[part]

    def _general(self, group: str) -> list[str]:
        """Return the names of a group; devices that know some replays alone come last."""
        return sorted(self._built[group], key=lambda name: bool(getattr(self._built[group][name], "lengths", None)))

    def _faults(self, choice: Mapping[str, str]) -> list[str]:
        found: list[str] = []
        try:
            chosen: dict[str, Any] = {group: self._parts[group][name] for group, name in choice.items()}
            objects = {group: self._built[group][name] for group, name in choice.items()}
            found += combination_faults(_with_length(dataclasses.replace(self._spec, **chosen), objects), objects)
        except _TrainsError:
            pass
        except InputError as error:
            found += error.faults
        return found


def _with_length(spec: RunSpec, objects: Mapping[str, Any]) -> RunSpec:
    """Return the spec of a replay with the model and batch size that its device knows."""
    lengths = objects["device"].lengths
    if not lengths or spec.workload.name != "replay":
        return spec
    model, batch_size = next(iter(lengths.items()))
    workload = dataclasses.replace(spec.workload, params={**spec.workload.params, "model": model})
    return dataclasses.replace(spec, workload=workload, batch_size=batch_size)


class _TrainsError(Exception):
    """Raised where a check would first train weights, which takes minutes; what it would say stays unknown."""


@contextlib.contextmanager
def _untrained() -> Iterator[None]:
    """Have whatever begins to train here raise `_TrainsError`."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise _TrainsError

    backward = Tensor.backward
    Tensor.backward = refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        Tensor.backward = backward  # type: ignore[method-assign]


def _of_compressor(one: Compressor) -> Iterator[tuple[str, Any]]:
    traits = one.traits
    yield "lossless", traits.contraction == 1.0
    yield "unbiased", traits.unbiased
    yield "route", "own" if traits.own_rounds else "gather" if traits.sum_dtype is None else "sum"
    yield "contraction", traits.contraction
    yield "feedback", one.feedback_kind
    yield "sparse", one.is_sparse
    yield "owns", traits.owns
    yield "max_workers", traits.max_world
    yield "fixed_size", traits.fixed_size


def _of_strategy(one: Strategy) -> Iterator[tuple[str, Any]]:
    yield "carries_compressor", one.carries_compressor
    yield "exchange_every_steps", one.cycle_steps if one.uses_collectives else None
    yield "uses_collectives", one.uses_collectives
    yield "draws_batches", one.draws_batches
    yield "has_optimizer", one.has_optimizer
    yield "trains", one.trains
    yield "agreement", one.agreement.value


def _of_workload(one: Workload) -> Iterator[tuple[str, Any]]:
    metric = one.metric
    yield "computes", one.computes
    yield "metric", metric and metric.name
    yield "target", metric and metric.target
    yield "higher_is_better", metric and metric.higher_is_better


def _of_transform(one: Transform) -> Iterator[tuple[str, Any]]:
    when = "before the run" if one.changes_at_once else "during the run"
    yield "changes", when if one.changes_the_model else "nothing"
    yield "keeps_parameters", one.keeps_parameters
    yield "adds_to_gradients", one.adds_to_gradients
    yield "compresses_after", one.compresses_after


def _of_device(one: Device) -> Iterator[tuple[str, Any]]:
    yield "computes", one.computes
    yield "lengths", dict(one.lengths)


_TRAITS: Mapping[str, Callable[[Any], Iterator[tuple[str, Any]]]] = {
    "compressor": _of_compressor,
    "strategy": _of_strategy,
    "workload": _of_workload,
    "transform": _of_transform,
    "device": _of_device,
}
_CAPABILITIES: Mapping[str, ModuleType] = {
    "strategy": strategy_capabilities,
    "transform": transform_capabilities,
    "workload": workload_capabilities,
}
