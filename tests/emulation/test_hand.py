"""Sessions by hand: what ping and iperf3 find agrees with the record; sessions do not see each other; nothing stays."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.machine.clone import CLONE, environment
from tests.emulation.support import gone_within, host_state

LIMIT_S = 240.0
FOR_LONG_S = f"4{os.getpid()}"
"""Of a `sleep` that no other process on this machine is."""
GOODPUT_OF_RATE = (1500 - 52) / 1514
"""TCP with time stamps over Ethernet, whose headers count in a link's rate."""


def longhaul(*words: str, wrapper: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*wrapper, sys.executable, "-m", "testbed", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=CLONE,
        env=environment(),
        check=False,
    )


class Session:
    """What is up, and how to reach into it."""

    def __init__(self, run: RunDir) -> None:
        self.run = run

    def execute(self, node: str, *command: str) -> str:
        where = ["--runs", str(self.run.path.parent), "--run", self.run.run_id]
        done = longhaul("exec", *where, node, "--", *command)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def rtt_ms(self, source: str, target: str) -> float:
        said = self.execute(source, "ping", "-c", "10", "-i", "0.1", "-q", target)
        found = re.search(r"= ([\d.]+)/", said)  # the least: others use the machine too
        assert found, said
        return float(found[1])


@contextlib.contextmanager
def up(runs: Path, *overrides: str, wrapper: tuple[str, ...] = ()) -> Iterator[Session]:
    done = longhaul("up", *overrides, "metrics_port=0", "--share", "--runs", str(runs), wrapper=wrapper)
    assert done.returncode == 0, done.stderr + done.stdout
    found = re.search(r"is up as (\S+)", done.stdout)
    assert found, done.stdout
    session = Session(RunDir(runs / found[1]))
    try:
        yield session
    finally:
        ended = longhaul("down", "--runs", str(runs), "--run", session.run.run_id)
    said = f"{ended.stderr}{ended.stdout}{session.run.orchestrator_log.read_text()}"
    assert ended.returncode in (0, 5), said  # a busy machine's session may not be believed
    gone_within(session.run.run_id)


def measured(session: Session, source: str) -> dict[str, Any]:
    links = json.loads(session.run.network.read_text())["links"]
    (found,) = (link["measured"] for link in links if link["wan"] and link["from"] == source)
    assert isinstance(found, dict)
    return found


def test_ping_and_iperf3_agree_with_the_record(machine_lock: None, tmp_path: Path) -> None:
    before = host_state()
    with up(tmp_path / "runs", "topo=wan100m", "workers=2") as session:
        rtt_s = measured(session, "oregon")["rtt_s"]
        assert abs(session.rtt_ms("oregon-0", "virginia-0") / 1e3 - rtt_s) < 1e-3
        session.execute("virginia-0", "iperf3", "--server", "--one-off", "--daemon")
        # the first seconds are TCP's own beginning
        said = session.execute("oregon-0", "iperf3", "--client", "virginia-0", "--time", "4", "--json")
        intervals = [interval["sum"]["bits_per_second"] for interval in json.loads(said)["intervals"]][2:]
        goodput_bit_s = sum(intervals) / len(intervals)
        rate_bit_s = measured(session, "oregon")["rate_bit_s"]
        assert abs(goodput_bit_s / (rate_bit_s * GOODPUT_OF_RATE) - 1) < 0.05
        assert "m0" in session.execute("oregon", "ip", "-brief", "address")
    summary = json.loads(session.run.summary.read_text())
    assert summary["status"] == "completed"
    assert summary["links"][0]["wire_bytes"] > 1e7
    assert host_state() == before


@dataclass(frozen=True)
class Lan:
    """What a session on a local network was asked, and what of its processes was there when, by their pids."""

    run_id: str
    user: str
    homes: str
    processes: str
    mounting: subprocess.CompletedProcess[str]
    unknown: subprocess.CompletedProcess[str]
    run_at_router: str
    sleepers: list[str]
    sleepers_after: list[str]


@pytest.fixture(scope="module")
def lan(machine_lock: None, tmp_path_factory: pytest.TempPathFactory) -> Lan:
    """Such a session, ended."""
    runs = tmp_path_factory.mktemp("lan") / "runs"
    with up(runs, "topo=lan", "workers=2") as session:
        asked = {
            "user": session.execute("local-0", "id", "-u").strip(),
            "homes": session.execute("local-0", "bash", "-c", "ls -A /home /root | grep -v :").strip(),
            "processes": session.execute("local-0", "ps", "ax"),
            "run_at_router": session.execute("local", "printenv", "LONGHAUL_RUN").strip(),
        }
        mounting = longhaul("exec", "--runs", str(runs), "local-0", "--", "bash", "-c", "mount -t tmpfs x /mnt")
        unknown = longhaul("exec", "--runs", str(runs), "mars-0", "--", "true")
        for node in ("local", "local-0"):
            session.execute(node, "sh", "-c", f"sleep {FOR_LONG_S} >/dev/null 2>&1 &")
        before = sleepers()
    return Lan(
        run_id=session.run.run_id,
        **asked,
        mounting=mounting,
        unknown=unknown,
        sleepers=before,
        sleepers_after=sleepers(),
    )


def test_in_a_node_one_is_root_of_the_node_alone(lan: Lan) -> None:
    assert lan.user == "0"
    assert lan.homes == ""
    assert len(lan.processes.splitlines()) < 6
    assert lan.mounting.returncode != 0
    assert lan.unknown.returncode == 2
    assert "known: local-0, local-1, local" in lan.unknown.stderr


def test_what_stays_in_the_background_ends_with_the_session(lan: Lan) -> None:
    """At a router no pid namespace takes it along, as in a node."""
    assert len(lan.sleepers) == 2
    assert lan.run_at_router == lan.run_id
    assert lan.sleepers_after == []


def sleepers() -> list[str]:
    """What a test left in the background, by the command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", FOR_LONG_S.encode()]:
                found.append(path.parent.name)
    return found


def test_two_sessions_at_once_do_not_see_each_other(machine_lock: None, tmp_path: Path) -> None:
    with up(tmp_path / "runs", "topo=wan100m", "workers=2") as first:
        with up(tmp_path / "runs", "topo=wan100m", "workers=2", "topo.rtt='20 ms'") as second:
            assert abs(first.rtt_ms("oregon-0", "virginia-0") - 67) < 1
            assert abs(second.rtt_ms("oregon-0", "virginia-0") - 20) < 1
            which = longhaul("exec", "--runs", str(first.run.path.parent), "oregon-0", "--", "true")
            assert which.returncode == 2
            assert "say which with --run" in which.stderr
        assert abs(first.rtt_ms("oregon-0", "virginia-0") - 67) < 1, "the end of one is not the end of the other"


def test_a_second_session_must_be_asked_for_by_share(machine_lock: None, tmp_path: Path) -> None:
    """The test holds the machine's lock, as a run would."""
    refused = longhaul("up", "topo=lan", "metrics_port=0", "--runs", str(tmp_path / "runs"))
    assert refused.returncode != 0
    assert "another run is going on this machine" in refused.stderr + refused.stdout
    assert not (tmp_path / "runs").exists() or not os.listdir(tmp_path / "runs")


@pytest.mark.parametrize(("nodes", "files"), [(24, 64), pytest.param(64, 128, marks=pytest.mark.tier("slow"))])
def test_many_nodes_in_containers_come_up_and_go(machine_lock: None, tmp_path: Path, nodes: int, files: int) -> None:
    """With fewer open files a process than they need, unless the limit is raised; theirs stays."""
    with up(tmp_path / "runs", "topo=lan", f"workers={nodes}", wrapper=("prlimit", f"--nofile={files}:")) as session:
        assert session.rtt_ms("local-0", f"local-{nodes - 1}") < 5
        limits = session.execute("local-0", "cat", "/proc/1/limits")
        assert re.search(rf"Max open files +{files} ", limits), limits
