"""Traits of plug-ins in a few words, for tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from testbed.core.spec.topology_svg import spread
from testbed.core.units import format_rate, format_time

Traits = Mapping[str, Any]
_ROUTES = {"sum": "summed", "gather": "gathered", "own": "own exchanges"}


def kind_words(group: str, found: Mapping[str, Any]) -> str:
    """Return what a description says of its kind, such as "biased, gathered, error feedback: plain"."""
    traits = found["traits"]
    if "program" in traits:
        return "no training loop of Longhaul's"
    return ", ".join(_WORDS[group](traits, found["capabilities"])) if traits else ""


def needs(group: str, found: Mapping[str, Any]) -> str:
    """Return the keys that have to be given with a plug-in."""
    required = [f"{group}.{one['name']}" for one in found["parameters"] if one["required"]]
    modelled = group == "workload" and found["traits"].get("computes") is False
    return ", ".join([*required, *(["device=h200, device=paced or device=profile"] if modelled else [])])


def _compressor(traits: Traits, _: Traits) -> Iterator[str]:
    yield "lossless" if traits["lossless"] else "lossy"
    if not traits["lossless"]:
        yield "unbiased" if traits["unbiased"] else "biased"
    yield _ROUTES[traits["route"]]
    if traits["sparse"]:
        yield "sparse"
    if traits["feedback"] != "off":
        yield f"error feedback: {traits['feedback']}"
    if traits["owns"] != "nothing":
        yield f"takes over the {traits['owns']}"
    if traits["max_workers"] is not None:
        yield f"at most {traits['max_workers']} workers"


def _strategy(traits: Traits, capabilities: Traits) -> Iterator[str]:
    every, agrees_late = traits["exchange_every_steps"], traits["agreement"] == "mean at the end"
    if every is None:
        yield "point to point"
    elif every == 1:
        yield "exchanges rarely" if agrees_late else "exchanges every step"
    else:
        yield f"exchanges rarely: every {every} steps"
    yield "any compressor that suits it" if traits["carries_compressor"] else "uncompressed"
    if not traits["trains"]:
        yield "trains nothing"
    if traits["agreement"] != "by strategy":
        yield f"replicas agree: {traits['agreement']}"
    if "FaultTolerant" in capabilities:
        yield "survives lost workers"


def _workload(traits: Traits, capabilities: Traits) -> Iterator[str]:
    if traits["metric"] is None:
        yield "learns nothing"
    else:
        sign = "at least" if traits["higher_is_better"] else "at most"
        yield f"{traits['metric']}, target {sign} {traits['target']:g}"
    if not traits["computes"]:
        yield "computes nothing"
    if "Sequential" in capabilities:
        yield "can be cut into stages"


def _transform(traits: Traits, _: Traits) -> Iterator[str]:
    yield "changes nothing" if traits["changes"] == "nothing" else f"changes the model {traits['changes']}"
    if not traits["compresses_after"]:
        yield "sends the changed model uncompressed"


def _device(traits: Traits, _: Traits) -> Iterator[str]:
    yield "times are measured here" if traits["computes"] else "times are modelled"
    if lengths := traits["lengths"]:
        yield f"replays of {', '.join(f'{model} (batch_size={size})' for model, size in lengths.items())}"


def _topology(traits: Traits, _: Traits) -> Iterator[str]:
    count = len(traits["regions"])
    yield f"{count} region{'s' * (count != 1)}, {traits['wan_links']} WAN link{'s' * (traits['wan_links'] != 1)}"
    yield spread(traits["rate_bit_s"], format_rate)
    yield f"RTT {spread(traits['rtt_s'], lambda rtt_s: format_time(rtt_s) if rtt_s else '0 s')}"
    yield f"{traits['workers']} workers"


_WORDS: Mapping[str, Callable[[Traits, Traits], Iterator[str]]] = {
    "compressor": _compressor,
    "strategy": _strategy,
    "workload": _workload,
    "transform": _transform,
    "device": _device,
    "topo": _topology,
}
