"""TCP's settings are those of a named profile, all of them, whatever the host's are."""

from __future__ import annotations

from typing import Any

import pytest
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from testbed.core.errors import RunError
from testbed.core.spec.run_spec import TCP_PROFILES
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.emulation.kernel import netlink_requests, tcp
from testbed.orchestrator.emulation.links import wires

PINNED = {
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_rto_min_us",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv6.conf.all.disable_ipv6",
}


def profile(name: str, topo: str = "wan1g") -> tcp.TcpProfile:
    return tcp.profile(name, compose([f"topo={topo}"]).topology)


@pytest.mark.parametrize("name", TCP_PROFILES)
def test_every_profile_pins_everything(name: str) -> None:
    assert profile(name).sysctls().keys() >= PINNED


def test_every_profile_names_its_congestion_control() -> None:
    found = {name: profile(name).congestion_control for name in TCP_PROFILES}
    assert found == {"tuned": "bbr", "bbr": "bbr", "reno": "reno", "stock": "cubic"}


@pytest.mark.parametrize("topo", ["lan", "wan1g", "wan10g", "aws8"])
def test_stock_has_the_stock_buffers_whatever_the_network(topo: str) -> None:
    settings = profile("stock", topo).sysctls()
    assert settings["net.ipv4.tcp_rmem"].split()[2] == "6291456"
    assert settings["net.ipv4.tcp_slow_start_after_idle"] == "1"


@pytest.mark.parametrize("topo", ["wan1g", "wan10g", "aws8"])
@pytest.mark.parametrize("name", [name for name in TCP_PROFILES if name != "stock"])
def test_the_others_hold_one_flow_back_by_no_buffer(name: str, topo: str) -> None:
    topology = compose([f"topo={topo}"]).topology
    most_bit_s = max(link.forward.rate_bit_s for link in topology.wan_links)
    settings = profile(name, topo).sysctls()
    for key in ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"):
        # a window is half of the buffer that holds it
        assert int(settings[key].split()[2]) / 2 > most_bit_s / 8 * topology.farthest_rtt_s
    assert settings["net.ipv4.tcp_slow_start_after_idle"] == "0"


def test_buffers_hold_what_events_will_make_of_a_link() -> None:
    spec = compose(["topo=wan10m", "events=[{at: 5 s, set: all, rate: 1 Gbit/s, rtt: 300 ms}]"])
    assert tcp.profile("tuned", spec.topology).buffer_bytes == tcp.STOCK_BUFFER_BYTES
    assert tcp.profile("tuned", spec.outermost_topology).buffer_bytes == 4 * 37_500_000


def test_a_route_says_a_least_time_out_only_where_it_is_locked() -> None:
    for asked_s, found_s in ((0.4, 0.4), (None, None)):
        message = netlink_requests.route("10.0.0.0/24", "10.1.0.1", "reno", asked_s).message
        assert wires._least_time_out_s(message) == found_s
    unlocked = netlink_requests.route("default", "10.1.0.1", None, 0.4).message.replace(
        (1 << 13).to_bytes(4, "little"), bytes(4)
    )
    assert wires._least_time_out_s(unlocked) is None


def test_routes_that_say_another_time_out_are_an_error() -> None:
    class Kernel:
        def __init__(self, *kept_s: float | None) -> None:
            self.kept_s = kept_s

        def dump(self, *_: int) -> list[bytes]:
            return [netlink_requests.route("10.0.0.0/24", "10.1.0.1", "bbr", kept_s).message for kept_s in self.kept_s]

    agreeing: Any = Kernel(0.4, 0.4)
    wires.verify_least_time_out(agreeing, 0.4, "node w0")
    for kept_s, said in ((None, "none"), (0.2, "0.2 s")):
        other: Any = Kernel(0.4, kept_s)
        with pytest.raises(RunError, match=rf"node w0: asked a least time-out of 0.4 s of each route, .* {said}"):
            wires.verify_least_time_out(other, 0.4, "node w0")


def test_without_the_sysctl_every_route_says_the_least_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "RTO_MIN_SYSCTL", "net.ipv4.no_such_thing")
    topology = compose(["topo=wan1g"]).topology
    assert tcp.profile("reno", topology).route_rto_min_s is None
    assert tcp.profile("reno", topology.dilated(4), 4).route_rto_min_s == 0.8


def test_a_routes_metrics_lock_the_least_time_out() -> None:
    message = rtmsg(netlink_requests.route("10.0.0.0/24", "10.1.0.1", "reno", 0.4).message)
    message.decode()
    metrics = message.get_attr("RTA_METRICS")
    found = {name: metrics.get_attr(name) for name in ("RTAX_LOCK", "RTAX_RTO_MIN", "RTAX_CC_ALGO")}
    assert found == {"RTAX_LOCK": 1 << 13, "RTAX_RTO_MIN": 400, "RTAX_CC_ALGO": "reno"}
