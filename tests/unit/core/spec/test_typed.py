"""A spec from elsewhere has the types that its readers expect, or is none."""

from __future__ import annotations

import math
from typing import Any

import pytest

from testbed.core.record.network_form import network_fault
from testbed.core.spec.run_spec import RunSpec
from testbed.core.spec.typed import fits
from tests.unit.analysis.synthetic import make_network, make_spec

WRONG: list[tuple[tuple[Any, ...], Any]] = [
    (("compressor", "params"), "text"),
    (("compressor", "name"), 3),
    (("seed",), True),
    (("seed",), 2**70),
    (("dilation",), 10**400),
    (("dilation",), math.nan),
    (("memory_limit",), {"oregon-0": "all"}),
    (("topology", "name"), None),
    (("topology", "regions"), ["oregon", 7]),
    (("topology", "nodes", 0, "region"), []),
    (("topology", "links", 0, "wan"), "yes"),
    (("topology", "links", 0, "forward", "rate_bit_s"), "1e9"),
    (("topology", "links", 0, "backward", "loss_ratio"), math.inf),
    (("events",), [{"t_s": 1.0, "kind": "link", "values": {"rate_bit_s": "all"}}]),
    (("background",), [{"link": "a", "source": "b", "load_ratio": None}]),
]
NAMED = {"events": "Change.values", "background": "Background.load_ratio"}


def spoiled(data: Any, way: tuple[Any, ...], value: object) -> Any:
    holder = data
    for key in way[:-1]:
        holder = holder[key]
    holder[way[-1]] = value
    return data


@pytest.mark.parametrize(("way", "value"), WRONG)
def test_a_value_of_another_type_is_named(way: tuple[Any, ...], value: object) -> None:
    assert RunSpec.from_json(make_spec().to_json()) == make_spec()
    with pytest.raises(TypeError, match=NAMED.get(way[-1], str(way[-1]))):
        RunSpec.from_json(spoiled(make_spec().to_json(), way, value))


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("links",), "text"),
        (("links", 0), None),
        (("links", 0, "name"), 3),
        (("links", 0, "asked"), []),
        (("links", 0, "measured", "rate_bit_s"), {"evil": 1}),
        (("links", 0, "measurements"), [3]),
        (("shaper",), ["evil"]),
    ],
)
def test_a_network_of_another_form_is_none(way: tuple[Any, ...], value: object) -> None:
    network = make_network(make_spec())
    assert network_fault(network) is None and network_fault({}) is None
    assert network_fault(spoiled(network, way, value)) is not None


def test_numbers_are_no_truth_values() -> None:
    assert fits(3, int | None) and fits(3, float) and fits(None, int | None) and fits((1, 2), tuple[int, ...])
    assert not fits(True, float) and not fits(1.5, int) and not fits({1: "a"}, dict[str, str])
