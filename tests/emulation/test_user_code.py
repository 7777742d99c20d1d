"""Whole runs of the user's code: what the record says ran, and that an edit makes another version of it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from testbed.core.record.run_directory import RunDir
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.emulation.containers.node_disk import CHANGES
from testbed.orchestrator.run_store.ended import KeptRuns
from tests.emulation.support import START_TIMEOUT_S, Longhaul, wait_until

SCRIPT = """
import os, sys, time
rank = int(os.environ["RANK"])
print("STARTED", flush=True)
time.sleep(3 * rank)  # two that import torch at once would keep both cores busy
import helper, made
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1000))
print("FACTOR", helper.FACTOR, open(sys.argv[1]).read())
os.makedirs(sys.argv[2])
torch.save({"factor": helper.FACTOR}, f"{sys.argv[2]}/last.pt")
with open(f"{os.environ['LONGHAUL_OUT']}/factor", "w") as file:
    file.write(str(helper.FACTOR))
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""
MAKES = "open('made.py', 'w').write('A = 1')\n"
MINE = """
from compressors.topk import TopK


class Mine(TopK):
    '''Selects as topk does.'''
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    path = tmp_path / "code"
    path.mkdir(mode=0o755)
    return path


def used(run: RunDir) -> dict[str, str | None]:
    summary = json.loads(run.summary.read_text())
    return {Path(one["path"]).name: one["sha256"] for one in summary["used_files"]}


def count(run: RunDir) -> int:
    """Return how many runs of its folder still count for its spec."""
    return len(list(KeptRuns(run.path.parent).of(RunSpec.from_json(json.loads(run.spec.read_text())))))


def check_live(longhaul: Longhaul) -> None:
    wait_until(lambda: "[local-0] STARTED" in longhaul.said, START_TIMEOUT_S, "output of rank 0")
    assert longhaul.process.poll() is None, "it came while the run went on"


def check_kept(run: RunDir, factor: int) -> None:
    for node in ("local-0", "local-1"):
        assert (run.out / node / "factor").read_text() == str(factor)
        assert torch.load(run.out / node / CHANGES / "checkpoints" / "last.pt") == {"factor": factor}


def check_verdict(run: RunDir) -> None:
    """The run is valid, but for what others on this machine take of its cores."""
    summary = json.loads(run.summary.read_text())
    assert [reason for reason in summary["reasons"] if not re.search(r"cores?\b|collector", reason)] == []
    assert (summary["status"], summary["verdict"] == "valid") == ("completed", not summary["reasons"])


def test_a_script_that_is_run_twice_and_edited_once_has_two_rows(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "train.py").write_text(MAKES + SCRIPT)
    data = folder.parent / "data"  # in no folder that nodes see by themselves
    data.mkdir(mode=0o755)
    (data / "data.txt").write_text("7")
    (folder / "link").symlink_to(data)
    script = ("workload=script", f"workload.script={folder / 'train.py'}", "workload.args=[link/data.txt,checkpoints]")
    runs, together = [], folder.parent / "runs"
    for factor in (1, 2):
        (folder / "helper.py").write_text(f"FACTOR = {factor}\n")
        longhaul = Longhaul(folder.parent / f"runs{factor}", "topo=lan", "workers=2", *script)
        check_live(longhaul)
        assert longhaul.wait() in (0, 5), longhaul.said
        runs.append(longhaul.run)
        check_verdict(longhaul.run)
        check_kept(longhaul.run, factor)
        assert f"FACTOR {factor} 7" in longhaul.run.log("local-0").read_text()
        assert set(used(longhaul.run)) == {"train.py", "helper.py", "data.txt"}, "and not what the script made itself"
        assert all(used(longhaul.run).values()) and "-lan-script-" in longhaul.run.run_id
        assert "none" not in longhaul.run.run_id
        assert [count(run) for run in runs] == [0] * (factor - 1) + [1], "the version of now, and no other"
        shutil.copytree(longhaul.run.path, together / longhaul.run.run_id)
    first, second = (json.loads(run.summary.read_text())["user_code"] for run in runs)
    assert first != second and used(runs[0])["train.py"] == used(runs[1])["train.py"]
    assert main(["compare", "--all", "--runs", str(together)]) == 0
    rows = [line.split() for line in capfd.readouterr().out.splitlines() if line.startswith("script ")]
    # one run each: a mean over versions would say (2 runs), or two seeds
    assert sorted(row[1:5] for row in rows) == sorted(["none", one[:6], "1", "1"] for one in (first, second))
    (data / "data.txt").write_text("8")
    assert count(runs[0]) == count(runs[1]) == 0


def test_a_class_outside_is_listed_and_a_changed_link_keeps_what_it_was_built_for(folder: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    (folder / "mine.yaml").write_text("_target_: mine.Mine\ndensity: 0.05\n")
    change = "events=[{at: 0 s, set: all, rate: 50 Mbit/s}]"
    asked = ("topo=wan100m", "workload=sensors", "workers=2", "steps=4", change)
    words = (*asked, f"compressor={folder / 'mine.yaml'}")
    longhaul = Longhaul(folder.parent / "runs", *words)
    assert longhaul.wait() in (0, 5), longhaul.said
    assert set(used(longhaul.run)) == {"mine.py"}
    for link in longhaul.summary()["links"]:
        asked, measured = link["rate_bit_s"]["asked"], link["rate_bit_s"]["measured"]
        assert link["changes"] == int(link["wan"])
        if link["wan"]:
            assert asked == pytest.approx(100e6) and measured == pytest.approx(100e6, rel=0.1)
    network = json.loads(longhaul.run.network.read_text())
    assert all(link["at_end"]["rate_bit_s"] == pytest.approx(50e6) for link in network["links"] if link["wan"])
    assert "events then changed oregon-virginia" in longhaul.said
    (folder / "mine.py").write_text(f"{MINE}\n# edited\n")
    assert count(longhaul.run) == 0
    shutil.rmtree(folder)
    assert count(longhaul.run) == 0
