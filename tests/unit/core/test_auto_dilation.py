from __future__ import annotations

import dataclasses

import pytest

from testbed.core.auto_dilation import BUSY_SHARE, LATE_SHARE, Load, choose, most_dilation
from testbed.core.errors import InputError
from testbed.core.profile import Collective, LayerTimes, Profile
from testbed.core.spec import MOST_DILATED_RTT_S, Part, RunSpec
from testbed.core.topology import Topology
from topologies import lan, two_regions

NONE = Part("none", "none.none")


def spec(topology: Topology, **given: object) -> RunSpec:
    parts = {"workload": NONE, "strategy": NONE, "compressor": NONE, "device": Part("native", "none.none")}
    return RunSpec(topology=topology, steps=1, **{**parts, **given})  # type: ignore[arg-type]


def profile(step_s: float, cpu_s: float, size_bytes: int = 1_000_000) -> Profile:
    return Profile(
        workload="w",
        compressor="c",
        batch_size=1,
        layers=(LayerTimes(name="a", parameters=size_bytes // 4, forward_s=0, backward_s=0),),
        forward_s=step_s / 3,
        backward_s=step_s * 2 / 3,
        optimizer_s=0.0,
        collectives=(Collective(kind="all_reduce", size_bytes=size_bytes),),
        cpu_step_s=cpu_s,
    )


def test_a_load_that_fits_is_not_slowed_down() -> None:
    assert choose(spec(two_regions.build(workers=2)), *[profile(0.01, 0.01)] * 2, cores=2) == 1.0


def test_the_smallest_k_that_fits_is_found() -> None:
    native, asked = profile(0.05, 0.05), spec(two_regions.build(workers=8))
    k = choose(asked, native, native, cores=2)
    load = Load.of(asked, native, native, cores=2)
    assert k > 1
    assert load.fits(k)
    assert not load.fits(k - 0.05)


def test_workers_that_compute_all_the_time_need_their_share_of_cores() -> None:
    """Without a network to wait for, k approaches workers / cores, with room for what else happens."""
    native, asked = profile(1.0, 1.0, size_bytes=4), spec(lan.build(workers=8))
    assert 8 / 2 < choose(asked, native, native, cores=2) < 1.5 * 8 / 2


def test_a_slower_device_needs_no_dilation() -> None:
    native, asked = profile(0.05, 0.05), spec(two_regions.build(workers=8))
    assert choose(asked, native, profile(2.0, 0.05), cores=2) == 1.0


def test_shares_fall_with_k() -> None:
    native = profile(0.05, 0.05)
    load = Load.of(spec(two_regions.build(workers=8)), native, native, cores=2)
    assert load.late_share(1) > load.late_share(2) > load.late_share(4) > 0
    assert load.busy_share(1) == pytest.approx(2 * load.busy_share(2))
    assert LATE_SHARE < 0.02
    assert BUSY_SHARE < 0.9


def test_where_no_k_fits_a_device_is_named_that_would() -> None:
    asked = spec(two_regions.build(workers=64))
    slow, native = profile(0.5, 0.5), profile(0.05, 0.5)
    with pytest.raises(InputError, match="dilation=auto: a step of 64 workers needs 20 s") as caught:
        choose(asked, slow, native, cores=2)
    step_s = float(caught.value.faults[0].partition("device.step_s=")[2].split()[0])
    assert choose(asked, slow, profile(step_s, 0.5), cores=2) <= most_dilation(asked)
    with pytest.raises(InputError):
        choose(asked, slow, profile(step_s / 2, 0.5), cores=2)


def test_round_trips_and_cubic_limit_k() -> None:
    asked = spec(two_regions.build(workers=2))
    rtt_s = asked.topology.farthest_rtt_s
    assert most_dilation(asked) == pytest.approx(MOST_DILATED_RTT_S / rtt_s)
    assert most_dilation(dataclasses.replace(asked, tcp="stock")) == 2.0
    assert most_dilation(spec(lan.build(workers=2))) > 100


def test_a_profile_without_collectives_counts_as_dense() -> None:
    asked = spec(two_regions.build(workers=4))
    told = profile(0.1, 0.1, 4_000_000)
    silent = dataclasses.replace(told, collectives=())
    assert Load.of(asked, silent, silent, 2) == Load.of(asked, told, told, 2)
