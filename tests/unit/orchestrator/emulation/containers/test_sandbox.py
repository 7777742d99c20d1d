"""What nodes share none can write to; runs are hidden wherever they lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.record.telemetry import RENDEZVOUS_IN_NODE, SOCKET_IN_NODE, STORE_IN_NODE
from testbed.orchestrator.emulation.containers import sandbox as module
from testbed.orchestrator.emulation.containers.oci_mounts import HARDENED
from testbed.orchestrator.emulation.containers.sandbox import Sandbox


def of(tmp_path: Path, runs: Path) -> Sandbox:
    clone = tmp_path / "clone"
    (clone / "runs").mkdir(parents=True)
    runs.mkdir(parents=True, exist_ok=True)
    return Sandbox("r", clone, runs, tmp_path / "telemetry.sock", tmp_path / "work", 1 << 28)


def test_no_place_to_write_to_is_shared(tmp_path: Path) -> None:
    sandbox = of(tmp_path, tmp_path / "runs")
    mounts = {node: sandbox.mounts(node) for node in ("a", "b")}
    shared = [
        mount
        for mount in mounts["a"]
        if mount in mounts["b"] and mount["type"] == "none" and "ro" not in mount["options"]
    ]
    assert shared == [], "one connects to the telemetry's socket, and sets neither its time nor its mode"
    assert SOCKET_IN_NODE in {mount["destination"] for mount in mounts["a"]}
    for place in (RENDEZVOUS_IN_NODE, STORE_IN_NODE):
        sources = {mount["source"] for each in mounts.values() for mount in each if mount["destination"] == place}
        assert len(sources) == 2
    everywhere = [mount for mount in mounts["a"] if mount["type"] != "none"]
    assert {mount["source"] for mount in everywhere} <= {"proc", "tmpfs", "shm", "sysfs"}, "each mounted anew"


@pytest.mark.parametrize("place", ["clone/runs", "clone/experiments/runs", "opt/runs", "usr/local/runs"])
def test_runs_are_hidden_where_a_node_would_see_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The first part of a path stands for the root: what is kept of it is seen."""
    monkeypatch.setattr(module, "KEPT", frozenset({tmp_path.parts[1]} if not place.startswith("clone") else ()))
    runs = tmp_path / place
    sandbox = of(tmp_path, runs)
    hidden = [mount for mount in sandbox.mounts("a") if mount["destination"] == str(runs)]
    assert [(mount["type"], mount["options"]) for mount in hidden] == [("tmpfs", [*HARDENED, "ro", "size=4k"])]


def test_runs_elsewhere_are_not_seen_anyway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", frozenset())
    sandbox = of(tmp_path, tmp_path / "elsewhere")
    assert sandbox.hidden() == [sandbox.clone / "runs"]
