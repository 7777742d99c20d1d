"""Nodes of a run pass nothing to each other but by the links: each way is tried, and one is opened on purpose."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import EXIT_INVALID
from tests.emulation.between_nodes import WAYS
from tests.emulation.support import Longhaul, gone_within, run_inside

RUN_ID = "20000101T000000Z-between-nodes-none-00000000"
HERE = Path(__file__).parent
LEFT_IN_A_NODE = {
    *("a file in a place that can be written to", "a Unix socket by its path", "an abstract Unix socket"),
    *("a Unix address that is taken", "loopback", "loopback, IPv6", "shared memory of System V"),
    *("a message queue of System V", "a semaphore of System V", "another process"),
    *("the place of a lock", "the place of a lock of a namespace", "a folder that is watched"),
    *("how many wait at a word of a file", "how many requests the machine counts"),
}
"""Ways by which something can be left inside a node: the others the kernel refuses there already."""
LEAKY = """
import os

from testbed.worker.strategies.ddp import DDP


class Leaky(DDP):
    '''Passes 8 kB around the links in each step, where ranks meet.'''

    def bind(self, context):
        super().bind(context)
        self.way, self.rank = context.comm.rendezvous, context.comm.rank

    def step(self, batch, step):
        if hasattr(self, "way") and self.way is not None:
            self.way.put(f"leak/{self.rank}", os.urandom(4000))
        return super().step(batch, step)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, machine_lock: None) -> Any:
    try:
        return run_inside("inside_between_nodes.py", str(tmp_path_factory.mktemp("between")), RUN_ID)
    finally:
        gone_within(RUN_ID)


def test_every_way_from_node_to_node_is_shut(said: Any) -> None:
    assert set(said["leave"]["left"]) >= LEFT_IN_A_NODE, said["leave"]
    assert "/run/longhaul/store" in said["leave"]["places"] and "/tmp" in said["leave"]["places"]
    assert {way: what for way, what in said["take"].items() if what is not None} == {}


def test_the_same_ways_are_open_between_processes_of_one_node(tmp_path: Path) -> None:
    """The list is not vacuous: where the namespaces are the same, the word is taken by each of them."""
    program = [sys.executable, str(HERE / "between_nodes.py")]
    leaving_it = [*program, "leave", str(tmp_path)]
    with subprocess.Popen(
        ["unshare", "--net", "--ipc", "--uts", "sh", "-c", 'ip link set lo up; exec "$@"', "sh", *leaving_it],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as leaving:
        try:
            assert leaving.stdout is not None
            left = json.loads(leaving.stdout.readline())["left"]
            enter = ["nsenter", f"--target={leaving.pid}", "--net", "--ipc", "--uts"]
            done = subprocess.run(
                [*enter, *program, "take", str(tmp_path)], capture_output=True, timeout=60, check=True
            )
        finally:
            os.killpg(leaving.pid, signal.SIGKILL)
    took = {way for way, what in json.loads(done.stdout).items() if what is not None}
    assert took == set(left) == set(WAYS), (took, left)


@pytest.mark.tier("slow")
def test_a_way_that_is_open_is_noticed(tmp_path: Path, machine_lock: None) -> None:
    """What strategies need of the rendezvous is open to a user's strategy too; it is counted, and judged."""
    code = tmp_path / "code"
    code.mkdir()
    for folder in (tmp_path, code):
        folder.chmod(0o755)
    (code / "leaky.py").write_text(LEAKY)
    (code / "leaky.yaml").write_text("_target_: leaky.Leaky\n")
    given = ("topo=wan1g", "workers=2", f"strategy={code / 'leaky.yaml'}", "steps=12", "compressor=topk")
    run = Longhaul(tmp_path / "runs", *given)
    assert run.wait() == EXIT_INVALID, run.said
    reasons = run.summary()["reasons"]
    assert any("at the rendezvous while training: traffic went around the links" in reason for reason in reasons)
