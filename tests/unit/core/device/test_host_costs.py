"""Times of a host: read from a device's parameters, refused where they are none, and told as what nobody measured."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.core.device import Native, Paced
from testbed.core.device.host_costs import NO_COSTS, HostCosts, unknowns
from testbed.core.spec.run_spec import Part
from tests.unit.core.device.test_profile_and_device import profile

PACED = "testbed.core.device.Paced"


def test_seconds_are_numbers_or_text_with_a_unit() -> None:
    given = {"step_s": 0.1, "host_s": {"collective": "7 ms", "segment": 9e-4}}
    assert HostCosts.of(Part("paced", PACED, given)) == HostCosts(collective_s=0.007, segment_s=0.0009)


@pytest.mark.parametrize("params", [{}, {"host_s": None}, {"host_s": {}}, {"host_s": 5}])
def test_a_device_that_says_nothing_of_its_host_has_no_costs(params: dict[str, Any]) -> None:
    assert HostCosts.of(Part("mine", "mine.Device", params)) == NO_COSTS


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"start": 0.1}, r"host_s\.start=0\.1: unknown; known: collective, segment"),
        ({"collective": 0}, r"host_s\.collective=0: must be above 0"),
        ({"segment": "fast"}, r"host_s\.segment=fast"),
        (0.1, r"host_s=0\.1: must be seconds, or time as text with a unit, by collective or segment"),
    ],
)
def test_what_is_no_time_of_a_host_is_refused_by_name(given: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Paced(step_s=0.1, host_s=given)


def test_a_record_says_that_nobody_measured_them() -> None:
    told = "how long the host takes to start a collective (device.host_s.collective: 7 ms, waited for)"
    assert list(unknowns({"collective": "7 ms"})) == [told]
    assert told in Paced(step_s=0.1, host_s={"collective": 0.007}).whole_profile(profile()).unknowns
    assert Native().whole_profile(profile()).unknowns == Paced(step_s=0.1).whole_profile(profile()).unknowns == ()
