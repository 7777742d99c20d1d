"""Whole runs that are not the plain main job: a user's script, a partition, a starved machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.orchestrator.machine.clone import CLONE, environment
from tests.emulation.support import Longhaul, gone_within

SCRIPTS = CLONE / "experiments" / "scripts"
SMALL = ("workers=2", "batch_size=16")
SENSORS = ("topo=wan100m", "workload=sensors", "steps=20", *SMALL)
"""Of several runs, so that how long a step takes is measured once."""
HOGS = 4 * (os.cpu_count() or 2)


@pytest.mark.tier("test")
def test_a_plain_ddp_script_runs_unmodified(machine_lock: None, tmp_path: Path) -> None:
    words = [f"workload.script={SCRIPTS / 'plain_ddp.py'}", "workload.args=[--epochs,1]"]
    run = Longhaul(tmp_path / "runs", "topo=wan100m", "workload=script", "workers=2", *words)
    assert run.wait() in (0, 5), run.said
    summary = run.summary()
    assert summary["status"] == "completed"
    assert (summary["workload"], summary["strategy"]) == ("script", "script")
    assert summary["steps"] is None
    assert summary["bytes"]["wire_wan"] > 1e6
    assert "rank 0 epoch 1 loss" in run.run.log("oregon-0").read_text()
    gone_within(run.run.run_id)


def test_a_script_that_fails_is_named_with_its_last_words(machine_lock: None, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    script = tmp_path / "broken.py"
    script.write_text("import os\nassert os.environ['RANK'] == '0', 'only rank 0 is well'\n")
    run = Longhaul(tmp_path / "runs", "topo=lan", "workload=script", "workers=2", f"workload.script={script}")
    assert run.wait() == 4
    assert any("local-1" in reason and "only rank 0 is well" in reason for reason in run.summary()["reasons"])


@pytest.mark.tier("test")
def test_training_goes_on_after_a_partition(machine_lock: None, tmp_path: Path) -> None:
    events = tmp_path / "partition.yaml"
    events.write_text("- at: 1 s\n  partition: [[oregon], [virginia]]\n  for: 3 s\n")
    run = Longhaul(tmp_path / "runs", *SENSORS, f"events={events}")
    assert run.wait() in (0, 5), run.said
    assert run.summary()["status"] == "completed"
    changes = [event for event in run.run.read_events() if event["event"] == "change"]
    assert [change["what"] for change in changes] == ["down", "up"]
    assert all(abs(change["t_s"] - asked_s) < 2.5 for change, asked_s in zip(changes, (1, 4), strict=True))
    steps = [event["step_s"] for event in run.run.read_events() if event["event"] == "step"]
    assert max(steps) > 2, "one step waited for the link"
    assert sorted(steps)[len(steps) // 2] < 1


def test_a_partition_that_outlasts_the_time_limit_fails_and_names_who_waited(
    machine_lock: None, tmp_path: Path
) -> None:
    events = tmp_path / "partition.yaml"
    events.write_text("- at: 1 s\n  partition: [[oregon], [virginia]]\n")
    run = Longhaul(tmp_path / "runs", *SENSORS, f"events={events}", "timeout_s=8")
    assert run.wait() == 4
    (reason,) = (reason for reason in run.summary()["reasons"] if reason.startswith("worker "))
    assert "link oregon-virginia is down since" in reason
    gone_within(run.run.run_id)


def test_a_crash_by_event_ends_training_and_names_the_node(machine_lock: None, tmp_path: Path) -> None:
    events = tmp_path / "crash.yaml"
    events.write_text("- at: 500 ms\n  crash: oregon-0\n")
    run = Longhaul(tmp_path / "runs", *SENSORS, f"events={events}")
    assert run.wait() == 4
    assert any("oregon-0 was ended by SIGKILL" in reason for reason in run.summary()["reasons"])


@pytest.mark.timeout(300)
def test_a_starved_machine_is_noticed(machine_lock: None, tmp_path: Path) -> None:
    """Starved in training alone: start-up under it takes minutes on a slow machine. A fast one has taken a third of the
    steps before the hogs are there."""
    run = Longhaul(tmp_path / "runs", "topo=lan", "steps=100", *SMALL)
    run.wait_for_step(5)
    hogs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=lambda: os.nice(-5))
        for _ in range(HOGS)
    ]
    try:
        run.wait_for_step(90)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert run.wait() == 5, run.said
    summary = run.summary()
    assert (summary["status"], summary["verdict"]) == ("completed", "invalid")
    assert any("waited" in reason for reason in summary["reasons"])


SIGNS = """
from compressors.none import Uncompressed


class Signs(Uncompressed):
    def rounds(self, tensor, context, *, out, error=None):
        import helper  # only now, in a node

        helper.seen(context)
        yield from super().rounds(tensor, context, out=out, error=error)
"""


@pytest.mark.parametrize(
    "asked",
    [
        "compressor=./plugins/signs.yaml",
        pytest.param("compressor._target_=plugins.signs.Signs", marks=pytest.mark.tier("slow")),
    ],
)
def test_a_plugin_beside_the_user_is_found_by_ranks_and_closed_streams_do_no_harm(
    machine_lock: None, tmp_path: Path, asked: str
) -> None:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "signs.py").write_text(SIGNS)
    (plugins / "signs.yaml").write_text("_target_: signs.Signs\nfeedback: auto\n")
    for place in (tmp_path, plugins):
        (place / "helper.py").write_text("def seen(context):\n    print('seen by', context.rank)\n")
        place.chmod(0o755)
    run = f"{sys.executable} -m testbed run --share --runs {tmp_path}/runs topo=lan workload=sensors metrics_port=0"
    call = ["bash", "-c", f"{run} workers=2 steps=3 dilation=guess {asked} <&- >&- 2>&-"]
    done = subprocess.run(call, cwd=tmp_path, env=environment(), capture_output=True, check=False, timeout=300)
    (folder,) = [path for path in (tmp_path / "runs").iterdir() if not path.name.startswith(".")]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "completed", summary["reasons"]
    assert done.returncode == (5 if summary["verdict"] == "invalid" else 0)
    assert summary["compressor"] in ("signs", "Signs")
    assert "seen by 1" in (folder / "logs" / "local-1.log").read_text()
    assert "Traceback" not in (folder / "logs" / "orchestrator.log").read_text()
