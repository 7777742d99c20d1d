"""`longhaul laws`: a compressor of the catalogue or a user's own, its faults, its table, its exit statuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.core.spec.run_spec import Part, RunSpec
from testbed.orchestrator.cli import laws
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.machine.clone import CLONE
from testbed.orchestrator.run import run_command, supervisor
from tests.waiting import wait_until

MINE = """
import os
from compressors.none import Uncompressed


class Mine(Uncompressed):
    def __init__(self, *, factor: float = 1.0, feedback="auto"):
        super().__init__(feedback=feedback)
        if factor <= 0:
            raise ValueError(f"factor={factor}: must be above 0")
        self.factor = factor

    def decode(self, payload, out, context, *, add=False, scale=1.0):
        super().decode(payload, out, context, add=add, scale=scale * self.factor)


class Ends(Mine):
    def encode(self, tensor, context):
        if tensor.numel() == 257:
            os._exit(7)
        return super().encode(tensor, context)
"""


WAITS = """

import pathlib
import sys
import time


class Waits(Uncompressed):
    def rounds(self, tensor, context, *, out, error=None):
        if "laws-ranks" in sys.argv:
            pathlib.Path(f"{os.getpid()}.pid").touch()
            time.sleep(300)
        yield from super().rounds(tensor, context, out=out, error=error)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a user's module, outside the tree."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, list[str]]:
    status = main(["laws", *arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return status, captured.out, captured.err.splitlines()


@pytest.mark.tier("all")
def test_names_and_values_that_are_wrong_are_status_2(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    for arguments, fault in (
        (["topkk"], "compressor=topkk: unknown compressor; did you mean topk?"),
        (["topk", "density=2", "--no-run"], "compressor.density=2: must be in (0, 1]"),
        (["topk", "depth=2", "--no-run"], "compressor.depth=2: unknown; topk knows: density, feedback"),
        (["mine.Mine", "factor=0", "--no-run"], "compressor.factor=0: must be above 0"),
        (["mine.Yours", "--no-run"], "compressor=Yours: cannot load 'mine.Yours'"),
        (["mine.Mine", "factor", "--no-run"], "compressor.factor: not of the form key=value"),
    ):
        status, out, lines = run(capsys, *arguments)
        assert (status, out) == (2, ""), arguments
        assert any(fault in line for line in lines), lines


@pytest.mark.tier("all")
@pytest.mark.timeout(600)
def test_a_class_beside_the_user_is_judged_and_its_breach_is_told(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    status, out, _ = run(capsys, "mine.Mine", "factor=0.5", "--no-run", "--no-speed")
    assert status == 4
    assert "Mine breaks the law: " in out and "contraction" in out
    assert os.environ["PYTHONPATH"] == "", "the folder is named by the part, and changes nothing else"


@pytest.mark.tier("all")
@pytest.mark.timeout(600)
def test_a_lawful_one_is_status_0_and_all_of_it_can_be_had_as_json(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    status, out, _ = run(capsys, "mine.Mine", "--no-run", "--no-speed", "--json")
    answer = json.loads(out)
    assert [row for row in answer["laws"] if row["outcome"] not in ("holds", "does not apply")] == []
    assert {"group-bytes", "damaged", "nothing-lost"} <= {row["law"] for row in answer["laws"]}
    assert (status, answer["throughput"], answer["runs"]) == (0, [], {})


FAILS = """

class Fails(Mine):
    def encode(self, tensor, context):
        return self.packed(tensor)

    def packed(self, tensor):
        return tensor.no_such_method()
"""
NO_BASE = """

class NoBase(Mine):
    def __init__(self, *, level: int = 1):
        super().__init__(level)
"""


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("./fails.yaml", "fails"),
        pytest.param("mine.Fails", "Fails", marks=pytest.mark.tier("slow")),
    ],
)
def test_the_first_exception_of_a_plugin_ends_the_laws_and_shows_its_place(
    target: str, name: str, capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    (here / "mine.py").write_text(MINE + FAILS)
    (here / "fails.yaml").write_text("_target_: mine.Fails\nfactor: 2.0\n")
    line = MINE.count("\n") + FAILS[: FAILS.index("tensor.no_such")].count("\n") + 1
    status, out, lines = run(capsys, target, "--no-run", "--no-speed")
    assert status == 4
    assert f"{name} breaks the law: " in out and "1 broken" in out
    (place,) = [place for place, said in enumerate(lines) if "met an exception, and no further one" in said]
    told = lines[place + 1 :]
    assert f'File "{here / "mine.py"}", line {line}, in packed' in "\n".join(told)
    assert told[-1].endswith("AttributeError: 'Tensor' object has no attribute 'no_such_method'")
    assert not any("/testbed/worker/laws/" in said for said in told)


@pytest.mark.tier("all")
def test_a_constructor_that_calls_its_base_wrongly_is_told_with_its_line(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    (here / "mine.py").write_text(MINE + NO_BASE)
    status, out, lines = run(capsys, "mine.NoBase", "--no-run")
    line = MINE.count("\n") + NO_BASE.count("\n")
    assert (status, out, len(lines)) == (2, "", 1)
    assert f"({here / 'mine.py'}, line {line}, in __init__)" in lines[0]


def test_one_that_ends_the_process_is_named_and_what_was_found_before_is_told(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    status, out, lines = run(capsys, "mine.Ends", "--no-run", "--no-speed")
    assert status == 4
    first = next(line.partition(" s  ")[2] for line in lines if ": Ends" in line)
    assert re.fullmatch(r"laws 0/\d\d: Ends", first), "all are counted before the first is looked at"
    assert any("laws: Ends ended the process with status 7 after " in line for line in lines)
    assert "same-mean" in out and "Ends was not judged to the end: " in out


def test_faults_of_a_class_and_of_its_traits_are_status_2_in_one_line(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    with (here / "mine.py").open("a") as module:
        module.write("\n\nclass Untold(Uncompressed):\n    traits = {'unbiased': True}\n")
    status, out, lines = run(capsys, "mine.Untold", "--no-run")
    assert (status, out, len(lines)) == (2, "", 1)
    assert "compressor=Untold: mine.Untold must have `traits`, a compressors.base.compressor.Traits: dict" in lines[0]
    (here / "yours.py").write_text(
        "from compressors.base.compressor import Traits\n\ntraits = Traits(unbiassed=True)\n"
    )
    status, out, lines = run(capsys, "yours.Wrong", "--no-run")
    assert (status, out, len(lines)) == (2, "", 1)
    assert "cannot load 'yours.Wrong': TypeError: Traits.__init__() got an unexpected keyword" in lines[0]


def test_a_class_called_as_a_known_one_runs_beside_it() -> None:
    asked = ["compressor._target_=mine.topk"]
    found = laws._overrides(Part("topk", "mine.topk", {}), asked)
    assert found == {name: [f"compressor={name}"] for name in ("none", "bf16", "topk")} | {"mine.topk": asked}
    found = laws._overrides(Part("topk", "compressors.topk.TopK", {}), ["compressor=topk"])
    assert list(found) == ["none", "bf16", "topk"]


@pytest.mark.tier("all")
@pytest.mark.timeout(600)
def test_nothing_is_left_of_a_command_that_is_killed(here: Path) -> None:
    command = [sys.executable, "-m", "testbed.orchestrator.cli.main", "laws", "mine.Waits", "--no-run", "--no-speed"]
    with (here / "mine.py").open("a") as module:
        module.write(WAITS)
    environ = {**os.environ, "PYTHONPATH": f"{CLONE}:{here}"}
    with subprocess.Popen(command, env=environ, cwd=here, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: len(list(here.glob("*.pid"))) >= 2, "the laws' ranks to wait in a collective", 300)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    pids = [int(path.stem) for path in here.glob("*.pid")]
    assert len(pids) >= 2
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of the laws' ranks")


@dataclass
class _Made:
    summary: dict[str, Any]


HOLDS = {"law": "mean", "outcome": "holds", "detail": "", "seconds": 0.1, "says": "So it is."}
FAST = {"numel": 1024, "threads": 1, "clone_s": 1e-6, "encode_s": 2e-6, "decode_s": None, "share": 0.5, "bits": 32.0}


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_the_run_beside_three_known_ones(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: str
) -> None:
    made: list[RunSpec] = []

    def make(spec: RunSpec, **_: object) -> _Made:
        made.append(spec)
        sent = {"payload": 1e6, "wire_total": 2e6}
        return _Made({"status": status, "verdict": "trusted", "metric": {"value": 0.9}, "bytes": sent, "time_s": 3.0})

    def ask(part: object, what: str, take: Any) -> None:
        if what == "law":
            take({"event": "law", **HOLDS})
            return
        take({"event": "throughput", **FAST, "relative_error": 0.0, "cosine": 1.0})
        take({"event": "throughput", "numel": 25_000_000, "threads": 1, "skipped": "would take about 99 s"})

    monkeypatch.setattr(run_command, "checked_spec", lambda resolved, runs_root, **_: resolved.spec)
    monkeypatch.setattr(supervisor, "supervise", make)
    monkeypatch.setattr(laws, "ask", ask)
    found, out, _ = run(capsys, "int8", "block_size=128", "--runs", str(tmp_path))
    assert found == (0 if status == "completed" else 4)
    assert [spec.compressor.name for spec in made] == ["none", "bf16", "topk", "int8"]
    assert made[-1].compressor.params["block_size"] == 128
    assert {(spec.topo, spec.workload.name, spec.steps) for spec in made} == {("wan100m", "digits", 80)}
    for words in ("int8 is lawful: 1 holds", "would take about 99 s", f"{status}, trusted", "0.500"):
        assert words in out
