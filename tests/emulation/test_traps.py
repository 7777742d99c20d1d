"""Traps of network emulation (docs/traps.md) that only a real network shows: one is built, looked at and used."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulation import inside_traps as inside
from tests.emulation.support import gone_within, run_inside

RUN_ID = "20000101T000000Z-traps-test-none-00000000"
FRAME_BYTES, MAX_SEGMENT_BYTES = 1514, 1460
NFQUEUE_DEFAULT_PACKETS = NETEM_DEFAULT_PACKETS = 1000
"""Or 1024, of an NFQUEUE."""
MAX_NAME_CHARACTERS = 15


@pytest.fixture(scope="module")
def found(machine_lock: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    work = tmp_path_factory.mktemp("traps")
    try:
        yield run_inside("inside_traps.py", str(work), RUN_ID)
    finally:
        gone_within(RUN_ID)


def seen_of(found: dict[str, Any], *roles: str) -> list[dict[str, Any]]:
    return [found["seen"][name] for role in roles for name in found["roles"][role]]


def test_a_rate_above_1_gbit_s_is_limited(found: dict[str, Any]) -> None:
    router = found["seen"][inside.EAST]
    (rate,) = (qdisc["options"]["rate"] for qdisc in router["qdiscs"] if qdisc["dev"] == "m0")
    assert rate * 8 == inside.FAST["rate_bit_s"] > 1e9


@pytest.mark.parametrize(("link", "asked"), [("fast", inside.FAST), ("near", inside.NEAR)])
def test_a_round_trip_is_there_once_also_one_of_2_ms(found: dict[str, Any], link: str, asked: dict[str, float]) -> None:
    # 0.4 ms is what five hops of this kernel take, on a busy core more. A delay that is there twice, or that a hop
    # rounds up to a tick of the clock (4 ms), is seen all the same.
    assert asked["rtt_s"] - 1e-4 <= found["shortest_round_trip_s"][link] < asked["rtt_s"] + 1.5e-3


def test_a_delay_line_has_room_for_all_that_is_under_way(found: dict[str, Any]) -> None:
    for record in found["records"].values():
        if record["wan"]:
            under_way_bytes = record["asked"]["rate_bit_s"] / 8 * record["asked"]["delay_s"]
            assert record["read_back"]["limit_packets"] * FRAME_BYTES > under_way_bytes
            assert record["read_back"]["limit_packets"] > NETEM_DEFAULT_PACKETS
    assert found["in_flight"]["held"] > NFQUEUE_DEFAULT_PACKETS + 100
    assert found["in_flight"]["arrived"] == inside.MANY


def test_what_a_delay_line_has_no_room_for_is_counted_by_the_kernel(found: dict[str, Any]) -> None:
    missing = inside.TOO_MANY - found["without_room"]["arrived"]
    assert missing > 0
    assert found["delay_lines"][f"fast from {inside.WEST}"]["queue_drops"] == missing
    others = [event for key, event in found["delay_lines"].items() if key != f"fast from {inside.WEST}"]
    assert len(others) == 5
    assert sum(event["queue_drops"] for event in others) == 0


def test_rate_and_delay_sit_on_different_hops_and_no_delay_on_a_worker(found: dict[str, Any]) -> None:
    for node in seen_of(found, "link_nodes"):
        assert {qdisc["kind"] for qdisc in node["qdiscs"]} == {"noqueue"}
        assert sum("NFQUEUE" in rule for rule in node["mangle"]) == 2
    for node in seen_of(found, "routers", "workers"):
        limited = [qdisc["dev"] for qdisc in node["qdiscs"] if qdisc["kind"] == "tbf"]
        assert sorted(limited) == sorted(link["ifname"] for link in node["links"] if link["ifname"] != "lo")
        assert not any("NFQUEUE" in rule for rule in node["mangle"])


def test_a_rate_is_tbfs_nowhere_htbs_with_a_burst_of_a_millisecond(found: dict[str, Any]) -> None:
    qdiscs = [qdisc for node in found["seen"].values() for qdisc in node["qdiscs"]]
    assert {qdisc["kind"] for qdisc in qdiscs} == {"tbf", "noqueue"}
    for options in (qdisc["options"] for qdisc in qdiscs if qdisc["kind"] == "tbf"):
        assert options["burst"] >= 0.99e-3 * options["rate"]


def test_a_loss_is_the_links_and_not_the_senders(found: dict[str, Any]) -> None:
    lost = found["lost"]
    assert (lost["refused"], lost["drops_at_own_card"]) == (0, 0)
    event = found["delay_lines"][f"lossy from {inside.EAST}"]
    assert event["packets"] == inside.LOST_OF
    assert event["drops"] == inside.LOST_OF - lost["arrived"]
    ratio = inside.LOSSY["loss_ratio"]
    assert abs(event["drops"] / inside.LOST_OF - ratio) < 5 * math.sqrt(ratio * (1 - ratio) / inside.LOST_OF)


def test_the_unit_of_loss_is_recorded_and_true(found: dict[str, Any]) -> None:
    units = {key: record["asked"]["unit"] for key, record in found["records"].items()}
    assert units[f"fast from {inside.EAST}"] == "super-packet"
    assert units[f"near from {inside.WEST}"] == "packet"
    passed = found["delay_lines"][f"near from {inside.WEST}"]["packets"]
    assert passed >= inside.TRANSFER_BYTES / MAX_SEGMENT_BYTES


def test_tcp_is_what_the_profile_says_in_every_namespace_and_in_the_record(found: dict[str, Any]) -> None:
    bdp_bytes = inside.FAST["rate_bit_s"] / 8 * inside.FAST["rtt_s"]
    assert len(found["seen"]) == 9
    for name, node in found["seen"].items():
        settings = node["sysctls"]
        for key in ("tcp_rmem", "tcp_wmem"):
            assert int(settings[f"net.ipv4.{key}"].split()[2]) == pytest.approx(4 * bdp_bytes)
        assert settings["net.ipv4.tcp_ecn"] == "0"
        assert settings["net.ipv4.tcp_slow_start_after_idle"] == "0"
        assert settings["net.ipv4.tcp_no_metrics_save"] == "1"
        assert settings.get("net.ipv6.conf.all.disable_ipv6", "1") == "1"
        assert settings.items() <= found["recorded_sysctls"][name].items()


def test_both_ends_of_a_connection_use_the_profiles_congestion_control(found: dict[str, Any]) -> None:
    assert found["congestion_control"] == {"opened": inside.TCP, "accepted": inside.TCP}


def test_no_packet_waits_for_arp_or_goes_by_ipv6(found: dict[str, Any]) -> None:
    for node in found["seen"].values():
        wires = sorted(link["ifname"] for link in node["links"] if link["ifname"] != "lo")
        assert sorted(entry["dev"] for entry in node["neighbours"]) == wires
        assert {state for entry in node["neighbours"] for state in entry["state"]} == {"PERMANENT"}
        families = {address["family"] for link in node["addresses"] for address in link["addr_info"]}
        assert families == {"inet"}


def test_no_bridge_and_no_rule_of_the_hosts_is_on_a_path(found: dict[str, Any]) -> None:
    namespaces = [node["namespace"] for node in found["seen"].values()]
    assert len({*namespaces, os.stat("/proc/self/ns/net").st_ino}) == len(namespaces) + 1
    for node in found["seen"].values():
        assert {link.get("linkinfo", {}).get("info_kind") for link in node["links"]} == {None, "veth"}
        assert node["forward"] == ["-P FORWARD ACCEPT"]


def test_a_worker_has_one_way_out(found: dict[str, Any]) -> None:
    for node in seen_of(found, "workers"):
        assert [link["ifname"] for link in node["links"]] == ["lo", "eth0"]
    assert found["contained"]["interfaces"] == ["lo", "eth0"]


def test_no_interface_has_a_name_too_long_however_long_the_users_are(found: dict[str, Any]) -> None:
    assert all(len(region) > MAX_NAME_CHARACTERS for region in found["roles"]["routers"])
    names = [link["ifname"] for node in found["seen"].values() for link in node["links"]]
    assert max(map(len, names)) <= MAX_NAME_CHARACTERS


def test_a_container_has_shared_memory_enough_and_no_processor_quota(found: dict[str, Any]) -> None:
    assert found["contained"]["shm_bytes"] == 2**30
    assert found["contained"]["cpu_quota"] == "none"
    assert not Path("/sys/fs/cgroup", f"longhaul-{RUN_ID}-w0").exists()
