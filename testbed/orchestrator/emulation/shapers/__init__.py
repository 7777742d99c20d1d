"""Ways to give a link its delay: one file each, behind `shaper.Shaper`."""

from __future__ import annotations

from testbed.orchestrator.emulation.shapers.netem import NetemShaper
from testbed.orchestrator.emulation.shapers.nfqueue import NfqueueShaper
from testbed.orchestrator.emulation.shapers.shaper import Shaper

SHAPERS: dict[str, type[Shaper]] = {shaper.name: shaper for shaper in (NetemShaper, NfqueueShaper)}
