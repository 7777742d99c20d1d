"""What is said to sch_netem, read as the kernel reads it."""

from __future__ import annotations

import statistics
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.spec.link_profile import JITTER_DISTRIBUTIONS, LinkProfile
from testbed.orchestrator.emulation.kernel.netlink import attributes
from testbed.orchestrator.emulation.shapers import netem_options
from testbed.orchestrator.emulation.shapers.shaper import FIELDS, _agree, asked_of

ratios = st.floats(0, 0.99)


def profile(**fields: Any) -> LinkProfile:
    return LinkProfile(rate_bit_s=1e9, source="assumed: a test", **fields)


def through(asked: netem_options.NetemSettings, distribution: str = "uniform") -> netem_options.NetemSettings:
    found = netem_options.decode(attributes(netem_options.encode(asked, distribution)))
    assert found is not None
    return found


@given(
    delay_s=st.floats(0, 5),
    jitter=st.floats(0, 0.4),
    loss=ratios,
    duplicate=ratios,
    reorder=ratios,
    limit=st.integers(1, 2**31),
    seed=st.integers(0, 2**64 - 1),
)
def test_what_is_encoded_is_what_is_decoded(
    delay_s: float, jitter: float, loss: float, duplicate: float, reorder: float, limit: int, seed: int
) -> None:
    asked = profile(
        delay_s=delay_s, jitter_s=jitter * delay_s, loss_ratio=loss, duplicate_ratio=duplicate, reorder_ratio=reorder
    )
    found = through(netem_options.settings_of(asked, limit, seed))
    read_back = netem_options.read_back(found, asked)
    assert all(_agree(value, read_back[field]) for field, value in asked_of(asked).items())
    assert (read_back["limit_packets"], read_back["keeps_order"], found.seed) == (limit, True, seed)


@given(burst=st.floats(1.5, 1000), bad=st.floats(0.5, 1), good=st.floats(0, 0.1), share=st.floats(0.01, 0.3))
def test_a_chain_comes_back_with_its_mean_and_its_burst(burst: float, bad: float, good: float, share: float) -> None:
    mean = good + share * (bad - good)
    asked = profile(loss_ratio=mean, loss_burst_packets=burst, bad_loss_ratio=bad, good_loss_ratio=good)
    read_back = netem_options.read_back(through(netem_options.settings_of(asked, 1000, 0)), asked)
    assert read_back["loss_ratio"] == pytest.approx(mean, rel=1e-4)
    assert read_back["loss_burst_packets"] == pytest.approx(burst, rel=1e-4)


def test_every_field_that_a_shaper_must_tell_is_told() -> None:
    asked = profile(delay_s=0.1)
    assert set(FIELDS) <= set(netem_options.read_back(netem_options.settings_of(asked, 1000, 0), asked))


def test_what_another_profile_would_do_does_not_agree() -> None:
    asked = profile(delay_s=0.1, loss_ratio=0.1, loss_burst_packets=4)
    for other in (profile(delay_s=0.1, loss_ratio=0.1), profile(delay_s=0.1, loss_ratio=0.2, loss_burst_packets=4)):
        read_back = netem_options.read_back(through(netem_options.settings_of(other, 1000, 0)), asked)
        assert not all(_agree(value, read_back[field]) for field, value in asked_of(asked).items())


def test_jitter_without_a_rate_would_reorder() -> None:
    asked = profile(delay_s=0.1, jitter_s=0.01)
    settings = netem_options.settings_of(asked, 1000, 0, transmits=False)
    assert settings.rate_byte_s == netem_options.ORDERING_RATE_BYTE_S
    unordered = netem_options.NetemSettings(**{**settings.__dict__, "rate_byte_s": 0})
    assert not netem_options.read_back(unordered, profile(delay_s=0.1, jitter_s=0.01))["keeps_order"]


def test_what_a_bucket_lets_pass_at_once_takes_the_links_time() -> None:
    spaced = netem_options.settings_of(profile(delay_s=0.1), 1000, 0)
    assert 1 < spaced.rate_byte_s / (1e9 / 8) < 1.002, "a full link is the bucket's"
    asked_for = netem_options.settings_of(profile(delay_s=0.1, burst_bytes=32_000), 1000, 0)
    in_transit = netem_options.settings_of(profile(delay_s=0.1), 1000, 0, transmits=False)
    assert (asked_for.rate_byte_s, in_transit.rate_byte_s) == (0, 0)


def test_a_link_that_is_down_loses_all_and_doubles_nothing() -> None:
    asked = profile(delay_s=0.1, loss_ratio=0.1, loss_burst_packets=4, duplicate_ratio=0.5)
    found = through(netem_options.losing_all(netem_options.settings_of(asked, 1000, 0)))
    assert (found.mean_loss_ratio, found.duplicate_ratio) == (1, 0)


@pytest.mark.parametrize("name", JITTER_DISTRIBUTIONS)
def test_tables_have_mean_0_and_their_spread(name: str) -> None:
    values = [value / 8192 for value in array("h", netem_options.distribution_table(name))]
    assert abs(statistics.fmean(values)) < 1e-3
    if name == "uniform":
        assert max(values) == pytest.approx(1, abs=1e-3)
    else:
        assert statistics.pstdev(values) == pytest.approx(1, abs=0.01)
    assert (max(values) > -2 * min(values)) == (name == "pareto")


def test_another_qdisc_is_not_taken_for_netem() -> None:
    assert netem_options.decode({1: b"tbf\0", 2: b""}) is None
