"""A measured model on links: what shared layers send is in their times, and nothing else changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testbed.core.parallelism.costs import corrected, published
from testbed.core.parallelism.model import MeasuredLayer, ModelProfile
from testbed.core.parallelism.plan import Plan
from testbed.core.parallelism.problem import LinkMatrix, Problem


def _layer(**given: Any) -> MeasuredLayer:
    values = {"forward_s": {1: 3.0, 2: 1.5}, "parameter_bytes": 8, "activation_bytes": 1_000_000, "stored_bytes": 9}
    return MeasuredLayer(**{"name": "block", **values, **given})


def _links(regions: str) -> LinkMatrix:
    return LinkMatrix.of_regions(regions, lambda a, b: 0.1 if a == b else 5.0, lambda a, b: 8e6 if a == b else 1e3)


def test_a_layer_that_is_shared_pays_for_its_sums() -> None:
    layer = _layer(sums=4, summed_bytes=4_000_000).on(_links("aab"))
    # of two ranks, 4 MB at 1 MB/s, and four times two messages of 0.1 s each
    assert 3 * (layer.forward_s[2] - 1.5) == pytest.approx(4.0)
    assert 3 * layer.call_s[2] == pytest.approx(4 * 2 * 0.1)
    assert (layer.forward_s[1], layer.call_s[1]) == (3.0, 0.0)


def test_the_slowest_link_inside_of_a_region_counts() -> None:
    quick = ((0.0, 0.1), (0.1, 0.0))
    links = LinkMatrix(("a", "a"), quick, ((1.0, 4e6), (8e6, 1.0)))
    layer = _layer(sums=1, summed_bytes=1_000_000).on(links)
    assert 3 * (layer.forward_s[2] - 1.5) == pytest.approx(2.0)


def test_a_degree_that_no_region_has_ranks_for_is_left_out() -> None:
    assert set(_layer().on(_links("ab")).forward_s) == {1}
    assert set(_layer().on(None).forward_s) == {1}


def test_layers_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="give it for tp=1 at least"):
        _layer(forward_s={2: 1.0})
    with pytest.raises(ValueError, match=r"sums=-1[\s\S]*summed_bytes=-3[\s\S]*call_s=-2"):
        _layer(sums=-1, summed_bytes=-3, call_s={1: -2})
    with pytest.raises(ValueError, match="layers: there is none"):
        ModelProfile(layers=(), optimizer_states=2)


def test_a_profile_passes_through_json() -> None:
    profile = ModelProfile(layers=(_layer(call_s={1: 0.5}), _layer(block=False)), optimizer_states=2)
    assert ModelProfile.from_json(json.loads(json.dumps(profile.to_json()))) == profile
    with pytest.raises(ValueError, match="not a model's profile of version 1, found None"):
        ModelProfile.from_json({})
    with pytest.raises(ValueError, match="not a model's profile: KeyError"):
        ModelProfile.from_json({"schema_version": 1})


def test_what_a_call_takes_besides_is_paid_for_each_micro_batch_and_published_for_each_sample() -> None:
    layer = _layer(call_s={1: 1.0}, forward_s={1: 0.5})
    problem = Problem(layers=layer_pair(layer), links=_links("aa"), global_batch=8)
    plan = Plan(pp=1, dp=2, tp=1, micro_batch=4, cuts=(0,), placement=(0, 1))
    # two layers, one micro-batch of four: 3 (1 + 4 x 0.5) each
    assert corrected(plan, problem).pipe_s == 2 * 3 * 3.0
    assert published(plan, problem).pipe_s == 2 * 3 * 4 * 1.5


def layer_pair(layer: MeasuredLayer) -> Any:
    return (layer.on(None), layer.on(None))
