"""`--trust FILE`: topologies name functions of that file, and of no other code."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.core.errors import InputError
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.config.trust import families, trust
from testbed.orchestrator.machine.clone import CLONE

PAGE = (CLONE / "docs" / "user-files.md").read_text()


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The files that docs/plug-ins.md shows, in the current folder."""
    text = (CLONE / "docs" / "plug-ins.md").read_text()
    for name in ("ship.py", "ship.yaml"):
        (shown,) = re.findall(rf"^```\w+\n# {re.escape(name)}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        (tmp_path / name).write_text(shown)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    trust([])


def faults(*overrides: str) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        compose(overrides)
    return caught.value.faults


def test_the_commands_of_the_page(ship: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    draw, run = block.splitlines()
    assert main(shlex.split(draw)[1:]) == 0
    assert "harbour" in capsys.readouterr().out
    made = subprocess.run(["make", "-n", *shlex.split(run)[1:]], cwd=CLONE, capture_output=True, text=True, check=True)
    assert "topo='./ship.yaml'" in made.stdout and "--trust='./ship.py'" in made.stdout


def test_without_the_flag_nothing_of_the_file_runs(ship: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (ship / "ship.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    assert main(["topologies", "./ship.yaml"]) == 2
    said = capsys.readouterr().err
    assert "line 1: topo._target_=ship.build: is neither" in said and "--trust ship.py" in said
    assert not (ship / "ran").exists()
    main(["topologies", "./ship.yaml", "--trust", "ship.py"])
    assert (ship / "ran").exists()
    assert main(["topologies", "./ship.yaml"]) == 2, "trust lasts for one command"


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "subprocess.check_output",
        "topologies.parts.alike",
        "topologies.matrices.build",
        "a.ship.build",
        "x",
    ],
)
def test_other_code_is_refused_with_or_without_trust(ship: Path, target: str) -> None:
    for files in ([], [Path("ship.py")]):
        trust(files)
        (line,) = faults(f"topo._target_={target}")
        assert line.startswith("topo._target_=") and "\n" not in line


def test_each_family_of_the_tree_is_known() -> None:
    assert {"described", "full_mesh", "lan", "measured", "ring", "star", "two_regions"} <= set(families())
    assert not {"parts", "parameters", "matrices"} & set(families())


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("1 / 0", "--trust ship.py: cannot be imported: ZeroDivisionError"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit"),
        ("def build(:", "cannot be imported: SyntaxError"),
        ("x = 1", "ship.py has no function build"),
        ("build = 3", "ship.py has no function build"),
        (
            "def build(rate: Nowhere, rtt):\n    return 3",
            "cannot be imported: NameError: name 'Nowhere'",
        ),
        (
            "from __future__ import annotations\ndef build(rate: No, rtt):\n    return 3",
            "its parameters cannot be read",
        ),
        ("def build(rate, rtt):\n    return 3", "returned int; it must return a Topology"),
        ("def build(rate, rtt):\n    raise OSError('two\\nlines')", "raised OSError: two"),
    ],
)
def test_a_trusted_file_at_fault_is_one_line(ship: Path, text: str, cause: str) -> None:
    (ship / "ship.py").write_text(text)
    trust([Path("ship.py")])
    (line,) = faults("topo=./ship.yaml")
    assert cause in line and "\n" not in line


def test_names_of_a_trusted_function_follow_the_rule_too(ship: Path) -> None:
    text = (ship / "ship.py").read_text()
    (ship / "ship.py").write_text(text.replace('places = ("harbour", "ship")', 'places = ("har/bour", "host")'))
    trust([Path("ship.py")])
    found = faults("topo=./ship.yaml")
    assert any("'har/bour' must be letters" in line for line in found)
    assert any("'host' is reserved" in line for line in found)


def test_files_that_cannot_be_modules_are_refused_at_once(ship: Path) -> None:
    (ship / "a").mkdir()
    for name in ("ship.txt", "my-ship.py", "a/ship.py"):
        (ship / name).write_text("")
    with pytest.raises(InputError) as caught:
        trust([Path(name) for name in ("none.py", "ship.txt", "my-ship.py", "ship.py", "a/ship.py")])
    assert [line.split(": ")[0] for line in caught.value.faults] == [
        "--trust none.py",
        "--trust ship.txt",
        "--trust my-ship.py",
        "--trust ship.py",
        "--trust a/ship.py",
    ]
