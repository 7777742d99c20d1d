"""Plain Mininet's `mn` builds our topologies. Those with delay: tests/netem/test_mininet_topo.py."""

from __future__ import annotations

import re

from tests.conftest import has_netem
from tests.emulation.plain_mininet import mn, require_pinged


def test_mn_pings_all_of_a_lan() -> None:
    require_pinged(mn("lan,lan_rate=1Gbit/s,workers=3", "--test", "pingall"), 6)


def test_a_mesh_has_no_loops_and_its_links_are_shaped() -> None:
    """Whatever else `mn` is told of links and switches."""
    topo = "full_mesh,rtt=0ms,rate=100Mbit/s,lan_rate=1Gbit/s,workers=5"
    done = mn(topo, "--link", "default", "--controller", "none", prompt="pingall\nnorth tc class show dev r0-eth0\n")
    require_pinged(done, 20)
    said = done.stdout + done.stderr
    assert re.search(r"class htb 5:1 root .*rate 100Mbit", said), said


def test_a_kernel_without_netem_is_named_and_nothing_is_killed() -> None:
    done = mn("wan100m,lan_rate=1Gbit/s,workers=2", "--test", "pingall")
    if has_netem():
        require_pinged(done, 2)
        return
    assert done.returncode != 0
    assert "tc refuses" in done.stderr and "sch_netem" in done.stderr
    assert "Cleaning up" not in done.stdout + done.stderr


def test_what_tclink_cannot_do_is_said_before_anything_is_built() -> None:
    done = mn("us3")
    assert done.returncode != 0
    assert "TCLink limits no rate above 1 Gbit/s" in done.stderr
    assert "Creating network" not in done.stdout + done.stderr
    assert "Cleaning up" not in done.stdout + done.stderr
