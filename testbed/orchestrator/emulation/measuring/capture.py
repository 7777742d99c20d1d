"""The packets that leave each WAN direction, as pcap files of headers in the run's directory.

They are seen behind the direction's rate limit, on the router's interface, so their times are when they leave.
Segmentation offloads stay on in mode "wan": a frame may then be a super-packet of many segments, also on slow links
(tbf cuts only those above its burst). In mode "wan-packets" the workers' cards carry no super-packets, so each frame is
a packet as on a wire, at some ten times the CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from testbed.core.errors import RunError
from testbed.core.record.run_directory import write_json
from testbed.orchestrator.emulation.kernel.netlink_requests import Batch
from testbed.orchestrator.emulation.links.network import WORKER_INTERFACE, Network
from testbed.orchestrator.emulation.links.node import NamespaceNode
from testbed.orchestrator.emulation.measuring.endpoints import PORT
from testbed.orchestrator.emulation.measuring.tap import SNAPLEN

MAX_BYTES = 64 << 20
"""Of one file: some 600,000 packets."""
INDEX = "capture.json"
_ANSWER_TIMEOUT_S = 20.0
_RTM_GETLINK, _LINK_BYTES = 18, 16


def forbid_super_packets(node: NamespaceNode, interface: str) -> None:
    """Let `interface` carry single packets only: connections made from now on build no super-packets.

    Raises:
        RunError: the kernel keeps another limit.
    """
    batch = Batch()
    batch.add("link", "set", index=_link(node, interface)["index"], gso_max_segs=1)
    node.route_socket.send(batch, f"node {node.name}")
    found = _link(node, interface).get_attr("IFLA_GSO_MAX_SEGS")
    if found != 1:
        raise RunError(f"node {node.name}: asked {interface} for 1 segment a packet at most, kernel keeps {found}")


def _link(node: NamespaceNode, interface: str) -> Any:
    for data in node.route_socket.dump(_RTM_GETLINK, _LINK_BYTES):
        link = ifinfmsg(data)
        link.decode()
        if link.get_attr("IFLA_IFNAME") == interface:
            return link
    raise RunError(f"node {node.name}: no interface {interface}")


def _file(number: int) -> str:
    """Return the name of a direction's file: a number, since a link's name is its user's and may be a path."""
    return f"{number:03}.pcap"


class Capture:
    """Records from entry to exit. Enter it before the workers connect: offloads are a connection's from its beginning.

    Args:
        directory: gets the files and `capture.json`, which says whose direction each holds; made if missing.
        mode: "wan" or "wan-packets".
        most_bytes: of one file; what comes after is counted, not kept.
    """

    def __init__(self, network: Network, directory: Path, mode: str, most_bytes: int = MAX_BYTES) -> None:
        self._network, self._directory, self._mode, self._most_bytes = network, directory, mode, most_bytes
        self._ports = [port for port in network.ports if port.link.wan]
        self._process: subprocess.Popen[str]

    def __enter__(self) -> Capture:
        if self._mode == "wan-packets":
            for worker in self._network.workers.values():
                forbid_super_packets(worker, WORKER_INTERFACE)
        self._directory.mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "testbed.orchestrator.emulation.measuring.tap"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an interrupt from the terminal is the run's to handle
            env=os.environ,
        )
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(self._config()) + "\n")
            self._process.stdin.flush()
            self._write_index(self._answer("ready"))
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        """Take what has left up to now. What went wrong is raised unless something else went wrong first."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._write_index(self._answer("finished"))
        except (OSError, RunError) as error:
            if kind is None:
                raise RunError(f"capture: {error}") from error
        finally:
            self._process.kill()
            self._process.wait()

    @property
    def failure(self) -> str | None:
        """Why nothing is recorded any more; None while all is well."""
        if self._process.poll() is None:
            return None
        return "the process that captures packets ended; logs/orchestrator.log says why"

    def _config(self) -> dict[str, Any]:
        taps = [
            {
                "file": _file(number),
                "path": str(self._directory / _file(number)),
                "namespace": port.node.namespace.path,
                "interface": port.interface,
            }
            for number, port in enumerate(self._ports)
        ]
        return {"most_bytes": self._most_bytes, "taps": taps}

    def _answer(self, event: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        timer = threading.Timer(_ANSWER_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        answer: dict[str, Any] = json.loads(line) if line.endswith("\n") else {}
        if answer.get("event") != event:
            raise RunError(
                f"the process that captures packets ended or did not answer within {_ANSWER_TIMEOUT_S:.0f} s;"
                " logs/orchestrator.log says why"
            )
        return answer

    def _write_index(self, found: dict[str, Any]) -> None:
        """Also at the beginning, so that files of a run that was killed can be read; their counts are missing then."""
        counts = {tap["file"]: tap for tap in found["taps"]}
        plan = self._network.plan
        write_json(
            self._directory / INDEX,
            {
                "mode": self._mode,
                "is_complete": found["event"] == "finished",
                "snaplen_bytes": SNAPLEN,
                "most_bytes": self._most_bytes,
                "cpu_s": found.get("cpu_s"),
                "probe_ports": [PORT, PORT + 1],
                "addresses": {str(plan.node_address(node)): node for node in self._network.workers},
                "files": [
                    {
                        "link": port.link.name,
                        "from": port.source,
                        "to": port.target,
                        "file": _file(number),
                        **counts.get(_file(number), {}),
                    }
                    for number, port in enumerate(self._ports)
                ],
            },
        )
