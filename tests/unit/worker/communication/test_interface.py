"""Gloo is told which interface to use, by its one name; left alone it would ask for the host's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.config.programs import program_of
from testbed.worker.communication import communicator
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.pending import CollectiveError


def test_a_worker_names_its_interface_before_it_meets_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "of-the-host")  # put back afterwards: `connect` sets it for good
    seen = []

    def store(*_: object, **__: object) -> None:
        seen.append(os.environ.get("GLOO_SOCKET_IFNAME"))
        raise RuntimeError("nobody is there")

    monkeypatch.setattr(communicator.dist, "TCPStore", store)
    with pytest.raises(CollectiveError, match="nobody is there"):
        Communicator.connect(rank=0, world_size=2, address="10.64.0.1", port=1, interface="eth0", timeout_s=1)
    assert seen == ["eth0"]


def test_a_users_script_is_told_too(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    script = tmp_path / "train.py"
    script.write_text("")
    script.chmod(0o644)
    program = program_of(resolve(["workload=script", f"workload.script={script}"]).spec)
    assert program.environment(1, "10.64.0.1", "eth0")["GLOO_SOCKET_IFNAME"] == "eth0"
