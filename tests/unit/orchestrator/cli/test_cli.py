"""The command line: exit statuses, one line a fault, every fault in one go, nothing left behind."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import testbed
from testbed.core.errors import InputError, MachineError, RunError
from testbed.core.packages import OTHER_SIDE
from testbed.orchestrator.cli import main as cli
from testbed.orchestrator.config.config import compose, resolve
from testbed.orchestrator.machine import lock
from testbed.orchestrator.machine.clone import CLONE, environment
from testbed.orchestrator.run import run_command
from testbed.orchestrator.run.questions import plugins


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, list[str]]:
    status = cli.main(list(arguments))
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return status, captured.out, captured.err.splitlines()


@pytest.mark.parametrize("arguments", [[], ["fly"], ["run", "--fast"], ["list", "x"], ["clean"], ["check", "--runs"]])
def test_unknown_commands_and_flags_are_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, lines = run(capsys, *arguments)
    assert (status, out, len(lines)) == (2, "", 1)
    assert lines[0].startswith("longhaul: ")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["chekc"], "check"),
        (["lits"], "list"),
        (["ls"], "list"),
        (["repotr", "x"], "report"),
        (["run", "--quite"], "--quiet"),
        (["list", "--jsn"], "--json"),
        (["sweep", "--exector=ray"], "--executor"),
        (["sweep", "--executor=slrum", "topo=lan"], "slurm"),
        (["tune", "--by", "tmie", "topo=lan"], "time"),
        (["run", "topo=wan100mm"], "wan100m"),
        (["laws", "tpok"], "topk"),
    ],
)
def test_a_misspelt_word_suggests_the_one_that_was_meant(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, lines = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert f"did you mean {meant}?" in lines[0]


def test_a_busy_machine_is_told_first_and_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("testbed.orchestrator.run.preflight.run_checks", lambda **words: asked.append(words) or [])
    monkeypatch.setattr(run_command, "check_parts", asked.append)
    monkeypatch.setattr(plugins, "ask_worker", lambda *words: asked.append(words))
    runs = ["--runs", str(tmp_path)]
    with socket.create_server(("127.0.0.1", 0)) as listener, lock.MACHINE_LOCK.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        port = f"metrics_port={listener.getsockname()[1]}"
        for command in (
            ["run", "topo=lan", "compressor=topk", port, *runs],
            ["up", "topo=lan", port, *runs],
            ["sweep", "topo=lan", "compressor=none,topk", port, *runs],
            ["tune", "topo=wan1g", "compressor=none,topk", port, *runs],
            ["budget", "target_step_s=1", "--check", "1", port, *runs],
            ["laws", "topk", *runs],
        ):
            status, out, lines = run(capsys, *command)
            assert (status, out, lines) == (3, "", [f"longhaul: {lock.BUSY}"]), command
        status, _, lines = run(capsys, "run", "topo=lan", "compressor=tpok", port, *runs)
        assert status == 2 and [line.split(":")[1] for line in lines] == [
            " compressor=tpok",
            f" {lock.BUSY}".split(":")[0],
        ]
    assert asked == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [[], ["run"], ["sweep"], ["check"], ["topologies"], ["list"], ["compare"], ["report"], ["dashboard"], ["clean"]],
)
def test_help_everywhere(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, *command, "--help")
    assert status == 0 and out.startswith("usage: longhaul")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version")[1] == f"longhaul {testbed.__version__}\n"


def test_every_fault_of_a_run_at_once_and_nothing_left(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["topo=wan1gg", "--quiet", "compressor=topk", "compressor.density=2", "workers=0", "steps=x"]
    status, out, lines = run(capsys, "run", "--runs", str(tmp_path / "runs"), *arguments)
    assert (status, out) == (2, "")
    for fault in ("topo=wan1gg: unknown topology", "density=2", "workers=0: must be", "steps=x: must be"):
        assert sum(fault in line for line in lines) == 1
    assert not list(tmp_path.iterdir())


def test_a_compressor_that_the_strategy_does_not_carry_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out, lines = run(capsys, "run", "--runs", str(tmp_path), "strategy=torch_ddp", "compressor=topk", "--quiet")
    assert (status, out) == (2, "")
    (line,) = [line for line in lines if "compressor=" in line]
    assert line.startswith("longhaul: compressor=topk: strategy=torch_ddp") and "use compressor=none" in line


def test_faults_of_input_and_lacks_of_the_machine_together(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setitem(sys.modules, "mininet", None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        status, _, lines = run(capsys, "run", "--runs", str(tmp_path), "topo=mars", f"metrics_port={port}")
        assert status == 2
        heads = [line.removeprefix("longhaul: ").split(":")[0] for line in lines]
        assert heads[0] == "topo=mars" and {"root", "Mininet", f"metrics port {port}"} <= set(heads)
        status, _, lines = run(capsys, "run", "--runs", str(tmp_path), f"metrics_port={port}")
        assert status == 3 and not any("topo" in line for line in lines)


@pytest.mark.parametrize("command", [["run"], ["sweep", "topo=lan"], ["plan"], ["laws", "topk"], ["down"]])
def test_where_the_worker_is_alone_a_command_says_so(command: list[str], tmp_path: Path) -> None:
    lacking = [name for name in OTHER_SIDE if name != "rich"]  # which a package of the worker's brings
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({lacking})); from testbed.orchestrator.cli import main as cli;"
    )
    call = [sys.executable, "-c", f"{code} sys.exit(cli.main(sys.argv[1:]))", *command]
    done = subprocess.run(call, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert f"lacks {', '.join(lacking)}" in line and "the worker alone" in line and "`make setup`" in line


def test_a_module_that_is_of_no_side_stays_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(_: object) -> int:
        import no_such_module

        return no_such_module.status

    monkeypatch.setattr(cli, "check", check)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        cli.main(["check"])


def test_check_is_status_3_where_no_run_can_be_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    status, out, lines = run(capsys, "check")
    assert status == 3 and "SCHED_FIFO" in out
    assert any(line.startswith("longhaul: root: ") for line in lines)


def test_topologies_are_listed_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "topologies")
    assert status == 0 and all(name in out for name in ("lan", "wan1g", "wan100m", "wan10m"))
    status, out, _ = run(capsys, "topologies", "wan10m", "workers=5", "topo.rtt=120 ms")
    assert status == 0 and "RTT 120 ms" in out and "oregon-2  rank 2" in out
    status, _, lines = run(capsys, "topologies", "mars")
    assert status == 2 and "unknown topology" in lines[0]


def test_report_of_an_unknown_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, _, lines = run(capsys, "report", "../etc", "x", "--runs", str(tmp_path))
    assert status == 2 and len(lines) == 2


def test_plugin_check_answers_for_the_defaults() -> None:
    answer = plugins.check_parts(compose([]))
    assert answer["parameters"] > 1_000_000


def test_plugin_check_reports_every_fault_of_every_plugin() -> None:
    spec = compose(["compressor=topk", "compressor.density=2", "strategy.nonsense=1"])
    with pytest.raises(InputError) as caught:
        plugins.check_parts(spec)
    assert any("density" in fault for fault in caught.value.faults)
    assert any("nonsense" in fault for fault in caught.value.faults)


def test_a_class_outside_the_tree_that_is_not_there_is_a_line() -> None:
    with pytest.raises(InputError) as caught:
        plugins.check_parts(compose(["compressor._target_=no.such.Class"]))
    assert len(caught.value.faults) == 1 and "no.such" in caught.value.faults[0]


@pytest.fixture
def worker_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A `testbed.worker` that the test writes; the rest of the clone is not needed by it."""
    package = tmp_path / "testbed" / "worker"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    monkeypatch.setattr("testbed.orchestrator.machine.clone.CLONE", tmp_path)
    monkeypatch.chdir(tmp_path)
    plugins.end_questions()
    yield package / "__main__.py"
    plugins.end_questions()


def test_a_check_that_crashes_shows_the_tail_of_its_words(worker_that: Path) -> None:
    worker_that.write_text("import sys; sys.exit('the disk is on fire')")
    with pytest.raises(RunError, match="the disk is on fire"):
        plugins.check_parts(compose([]))


def test_a_worker_without_its_packages_names_the_cure(worker_that: Path) -> None:
    worker_that.write_text("import no_such_torch")
    with pytest.raises(MachineError, match="make setup"):
        plugins.check_parts(compose([]))


def test_a_check_that_hangs_is_given_up(worker_that: Path) -> None:
    worker_that.write_text("import time; time.sleep(900)")
    with pytest.raises(RunError, match=r"no answer within 0\.5 s"):
        plugins.check_parts(compose([]), time_limit_s=0.5)


def test_a_plugin_that_prints_while_imported_does_not_hide_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = """print('{"hello": 1}'); print('{"faults": ["none"]}'); print('hello')"""
    (tmp_path / "loud.py").write_text(f"{said}\nfrom compressors.topk import TopK as Loud\n")
    monkeypatch.chdir(tmp_path)
    assert plugins.check_parts(compose(["compressor._target_=loud.Loud"]))["parameters"] > 1_000_000


def test_a_sound_spec_passes_with_the_plugins_checked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    answer = {"parameters": 1, "uses_feedback": False, "computes": True, "data_hash": "ab12"}
    monkeypatch.setattr(run_command, "check_parts", lambda spec: asked.append(spec.topo) or answer)
    monkeypatch.setattr("testbed.orchestrator.run.preflight.lacking", lambda checks: ())
    spec = run_command.checked_spec(resolve(["topo=lan"]), tmp_path)
    assert (spec.topo, spec.data_hash) == ("lan", "ab12")
    assert asked == ["lan"]


def test_the_orchestrator_never_loads_torch() -> None:
    code = "import sys, testbed.orchestrator.run.run_command as r; r.resolve([]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=CLONE, check=False).returncode == 0


@pytest.mark.parametrize(
    ("streams", "words", "status"),
    [
        ("<&-", "list --runs runs", 0),
        (">&-", "report --runs runs", 2),
        ("2>&-", "chekc", 2),
        ("<&- >&- 2>&-", "list --runs runs", 0),
        *(
            pytest.param(streams, words, status, marks=pytest.mark.tier("all"))
            for streams, words, status in (
                *(("<&-", "report --runs runs", 2), ("<&-", "chekc", 2), (">&-", "list --runs runs", 0)),
                *((">&-", "chekc", 2), ("2>&-", "list --runs runs", 0), ("2>&-", "report --runs runs", 2)),
                *(("<&- >&- 2>&-", "report --runs runs", 2), ("<&- >&- 2>&-", "chekc", 2)),
            )
        ),
    ],
)
def test_commands_end_as_usual_with_closed_standard_streams(
    streams: str, words: str, status: int, tmp_path: Path
) -> None:
    call = ["bash", "-c", f"{sys.executable} -m testbed {words} {streams}"]
    done = subprocess.run(call, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == status and "Traceback" not in done.stderr
    assert list(tmp_path.rglob("*")) == []


def test_an_output_that_cannot_be_written_is_a_line(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        call = [sys.executable, "-m", "testbed", "list", "--runs", str(tmp_path)]
        done = subprocess.run(call, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 4
        assert done.stderr == "longhaul: standard output cannot be written to: No space left on device\n"
        for words, status in (([*call[:3], "chekc"], 2), (call, 4)):
            done = subprocess.run(words, env=environment(), stdout=full, stderr=full, text=True, check=False)
            assert done.returncode == status, "the exit status is all that is left to tell it"
