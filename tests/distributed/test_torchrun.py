"""Ranks that torchrun has started, as a user starts them: the record, the same losses, and what goes wrong by name."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.core.errors import EXIT_COMPLETED, EXIT_FAILED, EXIT_INPUT, EXIT_MACHINE, RunError
from testbed.core.record.run_directory import RunDir
from testbed.core.record.telemetry import connect_over_network
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.cluster import __main__ as cluster
from testbed.orchestrator.cluster.ranks import Ranks
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.machine.clone import CLONE
from testbed.worker.process.torchrun import join
from tests.distributed.forked import Forked
from tests.distributed.harness import port_of_ones_own
from tests.distributed.harness import run as run_in_harness
from tests.waiting import HANG_S, wait_until

WORDS = ("topo=lan", "workload=digits", "steps=6", "evaluate_every=3", "seed=3")
LIMIT_S = 240.0


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """For all runs, one after another."""
    with port_of_ones_own(and_next=True) as first:
        yield first


def _started(port: int, words: Sequence[str], runs: Path, ranks: int = 2) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    command += ["-m", "testbed.worker", "torchrun", "--port", str(port), "--runs", str(runs), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=CLONE, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def _refused(port: int, words: Sequence[str], runs: Path) -> tuple[int, str]:
    """Return the exit status and output of the one rank of a run, forked with the environment that torchrun gives."""
    given = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "PYTHONPATH": str(CLONE)}
    arguments = ["torchrun", "--port", str(port), "--runs", str(runs), *words]
    script = CLONE / "testbed" / "worker" / "__main__.py"
    rank = Forked(script, arguments, environment={**os.environ, **given, "OMP_NUM_THREADS": "1"}, cwd=CLONE)
    said = b"".join(rank.communicate(LIMIT_S)).decode()
    return rank.wait(), said


def _ended(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=LIMIT_S)[0]
    finally:
        process.terminate()  # it ends its ranks, then itself
        process.wait(LIMIT_S)
        if process.stdout is not None:
            process.stdout.close()


def _record(runs: Path) -> RunDir:
    (path,) = runs.iterdir()
    return RunDir(path)


def _events(run: RunDir, kind: str) -> list[dict[str, Any]]:
    return [event for event in run.read_events() if event["event"] == kind]


@pytest.fixture(scope="module")
def made(port: int, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, str]:
    runs = tmp_path_factory.mktemp("cluster")
    process = _started(port, WORDS, runs)
    said = _ended(process)
    assert process.returncode == EXIT_COMPLETED, said
    return _record(runs), said


def test_a_run_leaves_the_record_of_any_other_and_says_that_it_is_measured(made: tuple[RunDir, str]) -> None:
    run, said = made
    summary = json.loads(run.summary.read_text())
    assert (summary["status"], summary["verdict"], summary["kind"]) == ("completed", "valid", "measured")
    assert summary["steps"] == 6 and summary["bytes"]["payload"] > 0
    assert summary["links"] == [] and summary["bytes"]["wire_total"] is None
    assert any("network between the machines" in text for text in summary["unknowns"])
    assert run.report.exists() and run.samples.exists()
    assert json.loads(run.provenance.read_text())["hosts"] == [socket.gethostname()] * 2
    assert "(measured)" in said and str(run.run_id) in said
    assert not run.lock.exists()


def test_its_losses_are_those_of_the_same_spec_elsewhere(made: tuple[RunDir, str], tmp_path: Path) -> None:
    run, _ = made
    spec = resolve([*WORDS, "workers=2", "dilation=1"]).spec
    assert RunSpec.from_json(json.loads(run.spec.read_text())).topology == spec.topology
    other = run_in_harness(spec, tmp_path)
    assert set(other.status.values()) == {0}, other.logs
    told = (_events(run, "step"), other.of("step"))
    losses = [{(one["rank"], one["step"]): one["loss"] for one in events} for events in told]
    assert losses[0] == losses[1] and len(losses[0]) == 12
    checksums = [{one["parameters_crc32"] for one in events} for events in (_events(run, "done"), other.of("done"))]
    assert checksums[0] == checksums[1] and len(checksums[0]) == 1


def test_all_that_cannot_be_asked_of_machines_that_are_there_is_told_at_once(port: int, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from topologies.lan import build\n")
    ours = (CLONE / "experiments" / "conf" / "topo" / "lan.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(ours.replace("topologies.lan.build", "mine.build"))
    words = ("--trust", f"{tmp_path}/mine.py", f"topo={tmp_path}/mine.yaml", *WORDS[1:])
    words = (*words, "workers=5", "dilation=3", "capture=wan", "memory_limit='1 GB'", "checkpoint=last")
    words = (*words, "strategy.fusion=mg_wfbp")
    process = _started(port, words, tmp_path / "runs", ranks=1)  # a second one may miss it, and end first
    said = _ended(process)
    assert process.returncode != EXIT_COMPLETED and f"exitcode  : {EXIT_INPUT}" in said
    asked = ("dilation=3:", "capture:", "memory_limit:", "checkpoint=last:", "strategy.fusion=mg_wfbp: needs times")
    for fault in ("workers=5: torchrun has started 1", *asked):
        assert fault in said
    assert "topo" not in said, "the function of the trusted file has built it"
    assert not (tmp_path / "runs").exists()


def test_a_folder_in_which_no_run_can_be_kept_is_refused(port: int, tmp_path: Path) -> None:
    taken = tmp_path / "runs"
    taken.write_text("a file")
    status, said = _refused(port, WORDS, taken)
    assert status == EXIT_INPUT
    assert f"--runs {taken}: no run can be kept there" in said


def test_a_device_that_is_not_this_processor_is_measured_without_asking_for_a_dilation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = resolve([*WORDS, "workers=2", "device=paced", "device.step_s=0.02"], emulated=False).spec
    assert spec.auto_dilation
    asked: list[bool] = []
    monkeypatch.setattr(cluster, "calibrate", lambda one, tell: asked.append(one.auto_dilation) or (one, None))
    assert cluster._profile(spec) is None and asked == [False]


def test_a_rank_that_is_killed_is_named_and_the_record_is_sealed(port: int, tmp_path: Path) -> None:
    process = _started(port, ["topo=lan", "workload=digits", "steps=20000"], tmp_path)
    try:
        victim = _pid_of_rank(1, process.pid)
        wait_until(lambda: _has_begun(tmp_path), "the first step of a run under torchrun")
        os.kill(victim, signal.SIGKILL)
    finally:
        said = _ended(process)
    wait_until(_record(tmp_path).summary.exists, "the sealing of the record of a run whose rank was killed")
    summary = json.loads(_record(tmp_path).summary.read_text())
    assert (summary["status"], summary["verdict"]) == ("failed", "invalid"), said
    (fault,) = _events(_record(tmp_path), "fault")
    assert "worker 1 on " in fault["message"] and socket.gethostname() in fault["message"]
    assert f"exitcode  : {EXIT_FAILED}" in said or "exitcode  : -9" in said


def test_a_port_is_free_again_while_ranks_of_the_run_are_still_there(port: int) -> None:
    spec = resolve([*WORDS, "workers=2"], emulated=False).spec
    with Ranks(spec, "127.0.0.1", port, "job", None) as ranks:
        channel = connect_over_network("127.0.0.1", port, HANG_S)
        channel.send({"event": "hello", "rank": 0, "host": "here", "job": "job"})
        assert channel.receive() is not None
        ranks.close()
        assert channel.receive() is None, "who is left is not ended"
        with Ranks(spec, "127.0.0.1", port, "job", None):
            pass
        channel.connection.close()


@pytest.mark.parametrize("port", ["0", "65535", "70000", "x"])
def test_a_port_without_a_next_one_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        join(["--port", port])
    assert ended.value.code == EXIT_INPUT and f"{port}: must be a port from 1 to 65534" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has accelerators")
def test_a_machine_without_accelerators_says_so_before_anything_begins(port: int, tmp_path: Path) -> None:
    status, said = _refused(port, [*WORDS, "--accelerator", "cuda"], tmp_path / "runs")
    assert status == EXIT_MACHINE and "--accelerator cuda: rank 0 of this machine wants" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.gpu
@pytest.mark.parametrize("words", [(), ("compressor=topk",), ("strategy=torch_ddp",), ("strategy=diloco",)])
def test_on_accelerators_the_losses_are_those_of_the_processor_but_for_rounding(
    words: tuple[str, ...], port: int, tmp_path: Path
) -> None:
    """As many ranks as there are devices; on one, nothing passes through NCCL."""
    ranks = torch.cuda.device_count()
    told = []
    for kind in ("cuda", "none"):
        process = _started(port, [*WORDS, *words, "--accelerator", kind], tmp_path / kind, ranks=ranks)
        said = _ended(process)
        assert process.returncode == EXIT_COMPLETED, said
        run = _record(tmp_path / kind)
        accelerators = json.loads(run.provenance.read_text())["accelerators"]
        assert all(name is None if kind == "none" else name.startswith("cuda:") for name in accelerators)
        told.append([one["loss"] for one in sorted(_events(run, "step"), key=lambda e: (e["rank"], e["step"]))])
    assert told[0] == pytest.approx(told[1], rel=1e-3) and len(told[0]) == 6 * ranks


def test_a_rank_that_computes_elsewhere_than_the_others_ends_the_run_by_name(port: int) -> None:
    spec = resolve([*WORDS, "workers=2"], emulated=False).spec
    with Ranks(spec, "127.0.0.1", port, "job", None, accelerated=True) as ranks:
        channel = connect_over_network("127.0.0.1", port, HANG_S)
        channel.send({"event": "hello", "rank": 1, "host": "far", "job": "job", "accelerator": None})
        with pytest.raises(
            RunError, match=r"worker 1 on \S+ \(far\): .*computes on the processor, where rank 0 has an"
        ):
            wait_until(lambda: ranks.next_message() is not None, "what rank 1 says")
        channel.connection.close()


def test_without_torchrun_it_says_how_to_start_it() -> None:
    command = [sys.executable, "-m", "testbed.worker", "torchrun", "workload=digits"]
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "MASTER_ADDR")}
    done = subprocess.run(
        command, cwd=CLONE, env=environment, text=True, capture_output=True, timeout=HANG_S, check=False
    )
    assert done.returncode == EXIT_INPUT
    assert "RANK, WORLD_SIZE, MASTER_ADDR: not set; start it as torchrun" in done.stderr


def _has_begun(runs: Path) -> bool:
    return any(runs.iterdir()) and any(_events(_record(runs), "step"))


def _pid_of_rank(rank: int, launcher: int) -> int:
    found: list[int] = []

    def look() -> bool:
        text = Path(f"/proc/{launcher}/task/{launcher}/children").read_text()
        for pid in map(int, text.split()):
            with contextlib.suppress(OSError):
                if f"\0RANK={rank}\0" in Path(f"/proc/{pid}/environ").read_text():
                    found.append(pid)
        return bool(found)

    wait_until(look, f"torchrun to start rank {rank}")
    return found[0]
