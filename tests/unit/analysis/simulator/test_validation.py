"""Whether a prediction is like what was validated: what is not modelled counts too."""

from __future__ import annotations

import dataclasses

import pytest

from testbed.analysis.simulator.validation import Standing, Validation, traits
from testbed.core.spec.run_spec import RunSpec
from tests.unit.analysis.synthetic import make_spec
from topologies import two_regions


def spec(**link: str) -> RunSpec:
    return dataclasses.replace(make_spec(), topology=two_regions.build(workers=4, **link))


OLD = {
    key: value for key, value in traits(spec()).items() if key not in ("jitter_s", "duplicate_ratio", "reorder_ratio")
}


@pytest.mark.parametrize("known", [traits(spec()), OLD])
@pytest.mark.parametrize(
    ("link", "words"),
    [
        ({"jitter": "2 ms"}, "  jitter 2 ms (validated: 0 s to 0 s)"),
        ({"duplicate": "1%"}, "  duplicate 0.01 (validated: 0 to 0)"),
        ({"reorder": "5%"}, "  reorder 0.05 (validated: 0 to 0)"),
        ({"loss": "1%"}, "  loss 0.01 (validated: 0 to 0)"),
    ],
)
def test_what_links_do_and_the_simulator_does_not_is_named(
    known: dict[str, object], link: dict[str, str], words: str
) -> None:
    validation = Validation((0.01,), (known,))
    assert Standing.of(spec(), validation).to_json()["inside"] is True
    lines = Standing.of(spec(**link), validation).lines()
    assert lines[0].endswith("this prediction is outside that range:") and lines[1:] == [words]
