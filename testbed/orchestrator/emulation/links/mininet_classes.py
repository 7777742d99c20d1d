"""All that is taken of Mininet; nothing else of the testbed imports it, so another release of it is met here.

Releases differ in what they import: 2.3.0 as its authors gave it out asks distutils for one class, which Python 3.12
has no longer, and Debian's 2.3.0-1.1 (Debian 13, Ubuntu 24.04) asks packaging. Both find it: the locked setuptools
brings a distutils, and the lock holds packaging.
"""

from __future__ import annotations

from mininet.link import Intf, Link, TCIntf
from mininet.net import Mininet
from mininet.node import Node, Switch
from mininet.topo import Topo

__all__ = ["Intf", "Link", "Mininet", "Node", "Switch", "TCIntf", "Topo", "empty_mininet"]


def empty_mininet() -> Mininet:
    """A Mininet without nodes. Its own set-up raises limits and sysctls of the host, and is left out."""
    Mininet.inited = True
    return Mininet(topo=None, controller=None, build=False)
