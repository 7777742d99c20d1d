"""Whole runs of users' scripts: what a script finds and gives, which worker a failed run names, and what it is told."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.core.record.run_directory import RunDir
from testbed.orchestrator.emulation.containers.node_disk import CHANGES
from tests.emulation.rootless import user
from tests.emulation.support import Longhaul, gone_within

SMALL = ("topo=lan", "workers=2", "workload=script")
TRAIN = """
import atexit, json, os, sys, threading, time
import compressors  # the script's own
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from testbed.worker import ddp_hook

class Model(torch.nn.Linear): pass
def last_words():
    print("HANDLER", Model.__name__, compressors.MINE, flush=True)
atexit.register(last_words)
dist.init_process_group("gloo")
rank = dist.get_rank()
print("FIRST", flush=True)
model = DistributedDataParallel(Model(50, 20))
model.register_comm_hook(None, ddp_hook("topk", density=0.1))
for _ in range(3):
    model(torch.ones(2, 50)).sum().backward()
os.makedirs("checkpoints")
torch.save(model.module, "checkpoints/last.pt")
same = type(torch.load("checkpoints/last.pt", weights_only=False)) is Model
with open("history.txt", "a") as history:
    history.write(f"{rank}\\n")
names = ("LR", "SHLVL", "TORCHELASTIC_RUN_ID", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE", "PYTHONPATH")
found = {name: os.environ.get(name) for name in names}
found |= {"argv": sys.argv[1:], "launched": dist.is_torchelastic_launched(), "same": same}
with open(f"{os.environ['LONGHAUL_OUT']}/found.json", "w") as file:
    json.dump(found, file)
threading.Thread(target=lambda: (time.sleep(2), print("THREAD", Model.__name__, flush=True))).start()
dist.destroy_process_group()
"""
ENDS = """
import os, signal, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
try:
    for step in range(1000):
        dist.all_reduce(torch.ones(1000))
        if step == 20 and dist.get_rank() == 1:
            {leave}
finally:
    dist.destroy_process_group()
    if dist.is_available() and os.environ["RANK"] == "1":
        time.sleep({pause})
"""
ALONE = """
import os, time
import torch.distributed as dist
os.environ["MASTER_ADDR"] = "localhost"
if os.environ["RANK"] == "0":
    dist.init_process_group("gloo", rank=0, world_size=1)
print("done")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    path = tmp_path / "code"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
def rate() -> Iterator[None]:
    os.environ["LR"] = "0.5"
    yield
    del os.environ["LR"]


def run(folder: Path, text: str, *more: str) -> Longhaul:
    (folder / "train.py").write_text(text)
    return Longhaul(folder.parent / "runs", *SMALL, f"workload.script={folder / 'train.py'}", *more)


def kept(folder: RunDir, node: str) -> set[str]:
    place = folder.out / node
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}


def check_train(longhaul: Longhaul, folder: Path) -> None:
    assert longhaul.wait() in (0, 5), longhaul.said
    assert {path.name for path in folder.iterdir()} == {"train.py", "compressors.py", "history.txt"}
    assert (folder / "history.txt").read_text() == "before\n"
    for rank, node in enumerate(("local-0", "local-1")):
        assert kept(longhaul.run, node) == {"found.json", f"{CHANGES}/checkpoints/last.pt", f"{CHANGES}/history.txt"}
        assert (longhaul.run.out / node / CHANGES / "history.txt").read_text() == f"before\n{rank}\n"
        found = json.loads((longhaul.run.out / node / "found.json").read_text())
        assert (found["LR"], found["SHLVL"], found["launched"], found["same"]) == ("0.5", None, True, True)
        assert found["argv"] == ["--lr=0.1", "a b", "${x}"] and found["ROLE_WORLD_SIZE"] == "2"
        assert longhaul.run.log(node).read_text().split("\n")[-4:] == [
            "FIRST",
            "THREAD Model",
            "HANDLER Model True",
            "",
        ]
    said = {word: float(at) for at, word in re.findall(r"(?m)^ *([\d.]+) s  \[local-0\] (\w+)", longhaul.said)}
    assert said["HANDLER"] - said["FIRST"] > 1.5, "it came while the script ran"
    assert f"{longhaul.run.logs}/" in longhaul.said and f"{longhaul.run.out}/" in longhaul.said
    summary = longhaul.summary()
    assert (summary["status"], summary["compressor"]) == ("completed", "topk")
    (hook,) = summary["hooks"]
    assert (hook["name"], hook["params"]["density"]) == ("topk", 0.1)
    assert not any("network" in reason or "joined" in reason for reason in summary["reasons"])
    recorded = json.loads(longhaul.run.spec.read_text())["workload"]["params"]["environment"]
    assert recorded["LR"] == "0.5" and "SHLVL" not in recorded


def prepare(folder: Path) -> None:
    (folder / "compressors.py").write_text("MINE = True\n")
    (folder / "history.txt").write_text("before\n")


WORDS = ("--", "--lr=0.1", "a b", "${x}")


def test_a_script_writes_is_seen_and_ends_as_under_torchrun(machine_lock: None, folder: Path, rate: None) -> None:
    prepare(folder)
    check_train(run(folder, TRAIN, *WORDS), folder)


@pytest.mark.tier("slow")
@pytest.mark.rootless
@pytest.mark.timeout(900)
def test_it_does_so_without_root_too(machine_lock: None, rate: None) -> None:
    with user() as somebody:
        folder = somebody.home / "code"
        folder.mkdir(mode=0o755)
        prepare(folder)
        (folder / "train.py").write_text(TRAIN)
        for path in (folder, *folder.iterdir()):
            os.chown(path, *(somebody.home.stat().st_uid,) * 2)
        asked = ("--rootless", *SMALL, f"workload.script={folder / 'train.py'}", *WORDS)
        check_train(Longhaul(somebody.home / "runs", *asked, wrapper=somebody.wrapper(), is_patient=True), folder)


@pytest.mark.parametrize(
    ("leave", "pause_s", "end"),
    [
        ("sys.exit(7)", 0.5, "worker 1 on local-1 ended with status 7 before it was done"),
        pytest.param(
            *("os.kill(os.getpid(), signal.SIGKILL)", 0, "worker 1 on local-1 was ended by SIGKILL"),
            marks=pytest.mark.tier("slow"),
        ),
        pytest.param(
            *("break", 0, "worker 1 on local-1 had ended before it, with status 0"), marks=pytest.mark.tier("slow")
        ),
        pytest.param(
            *("raise ValueError('no data')", 0, "worker 1 on local-1 ended with status 1 before it was done"),
            marks=pytest.mark.tier("slow"),
        ),
    ],
)
def test_the_worker_that_left_first_is_named(
    leave: str, pause_s: float, end: str, machine_lock: None, folder: Path
) -> None:
    longhaul = run(folder, ENDS.format(leave=leave, pause=pause_s))
    assert longhaul.wait() == 4, longhaul.said
    assert end in longhaul.summary()["reasons"][0]
    assert end in longhaul.said and "None" not in longhaul.said
    gone_within(longhaul.run.run_id)


def test_a_script_around_the_network_is_told_so(machine_lock: None, folder: Path) -> None:
    longhaul = run(folder, ALONE)
    assert longhaul.wait() == 5, longhaul.said
    reasons = longhaul.summary()["reasons"]
    assert any(reason.startswith("no worker sent anything over the network: ranks meet at") for reason in reasons)
    ends = [event for event in longhaul.run.read_events() if event["event"] == "script_end"]
    assert [(end["rank"], end["joined"], end["how"]) for end in ends] == [
        (0, True, "ended with status 0"),
        (1, False, "ended with status 0"),
    ]
