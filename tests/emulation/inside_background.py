"""In fresh namespaces: background traffic on a link that carries nothing else; prints what each side counted.

Its argument is JSON: `link` (of `symmetric`), `backgrounds`, `seconds` (emulated), `dilation`, `tcp`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from testbed.core.errors import RunError
from testbed.core.spec.schedule import Background
from testbed.core.spec.topology import Topology, symmetric
from testbed.orchestrator.emulation.kernel import tcp
from testbed.orchestrator.emulation.links.network import Network
from testbed.orchestrator.emulation.traffic.background import BackgroundTraffic

SAMPLES = 4


def the_generator() -> int:
    """The pid of the process that makes the traffic, which is the only one of its kind in this pid namespace."""
    (pid,) = (
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.read_bytes().split(b"\0")[1:3] == [b"-m", b"testbed.orchestrator.emulation.traffic.generator"]
    )
    return pid


def after_its_death(traffic: BackgroundTraffic) -> list[Any]:
    os.kill(the_generator(), signal.SIGKILL)
    while traffic.failure is None:
        time.sleep(0.01)
    try:
        traffic.sample()
    except RunError as error:
        return list(error.faults)
    return []


def main() -> None:
    asked = json.loads(sys.argv[1])
    k = asked["dilation"]
    link = symmetric("a-b", "a", "b", wan=True, source="assumed: for a test", **asked["link"])
    topology = Topology(name="pair", regions=("a", "b"), nodes=(), links=(link,)).dilated(k)
    backgrounds = [Background(**background) for background in asked["backgrounds"]]
    events: list[dict[str, Any]] = []
    with (
        Network(topology, tcp.profile(asked["tcp"], topology, k), "nfqueue", lambda _: None) as network,
        BackgroundTraffic(network, backgrounds, k, events.append) as traffic,
    ):
        ports = {port.source: port for port in network.ports}
        zero = {source: port.read() for source, port in ports.items()}
        started_s = time.monotonic()
        traffic.start(started_s)
        samples = []
        for number in range(1, SAMPLES + 1):
            time.sleep(max(0.0, started_s + asked["seconds"] * k * number / SAMPLES - time.monotonic()))
            events.clear()
            before_s = time.monotonic()
            traffic.sample()
            between_s = [(at_s - started_s) / k for at_s in (before_s, time.monotonic())]
            samples.append({"between_s": between_s, "events": {event["from"]: dict(event) for event in events}})
        now = {source: port.read() for source, port in ports.items()}
        found = {
            "samples": samples,
            "queue_bytes": {source: now[source].sent_bytes - zero[source].sent_bytes for source in ports},
            "drops": {source: now[source].drops - zero[source].drops for source in ports},
            "wire_bytes": {source: traffic.wire_bytes("a-b", source) for source in ports},
            "after_its_death": after_its_death(traffic),
        }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
