"""The rule for names of regions, nodes and links, which become host names, labels of metrics and names in exports.

A name never becomes a path: the rule has no dots and slashes, and files are numbered or named by nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from testbed.core.user_text import shown

MAX_NAME, MAX_LINK_NAME = 40, 81
"""Characters; a link without a name is called after both of its regions."""
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_OUR_OWN: Mapping[str, str] = {
    "all": "this testbed's, for all links",
    "others": "this testbed's, for all other nodes",
    "localhost": "every machine's own",
}
CONTAINERLAB = ("host", "mgmt-net", "macvlan", "vxlan", "vxlan-stitch", "dummy")
"""Names that are no nodes of a lab where a link of containerlab ends at them."""
_EXPORTS: Mapping[str, str] = {
    **dict.fromkeys(CONTAINERLAB, "containerlab's, for what is no node of a lab"),
    "c0": "Mininet's, for its controller",
}
_LINK_NODE = re.compile(r"wan[0-9]+")
"""Names that the middle of a WAN link has in a lab of containerlab."""


def name_fault(name: str, *, is_link: bool = False, is_ours: bool = False) -> str | None:
    """Return what is wrong with a name, or None.

    Args:
        is_link: True for the name of a link, which may be longer.
        is_ours: True for a name in a topology of this repository, which exports replace.
    """
    most = MAX_LINK_NAME if is_link else MAX_NAME
    if not name:
        return "the name '' is empty; give one of letters, digits and inner hyphens"
    if len(name) > most or not _NAME.fullmatch(name):
        return f"the name {shown(name)} must be letters, digits and inner hyphens, {most} at most; give another one"
    owner = _OUR_OWN.get(name.lower()) or (None if is_ours else _EXPORTS.get(name.lower()))
    if not is_link and _LINK_NODE.fullmatch(name.lower()):
        owner = "the export's to containerlab, for the middle of a WAN link"
    return f"the name {shown(name)} is reserved: it is {owner}; give another one" if owner else None
