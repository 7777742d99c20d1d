"""make refuses variables on its command line that the target does not read, and says what to write."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

import pytest

from scripts import make_variables
from testbed.orchestrator.machine.clone import CLONE

ROOT = CLONE
TEXT = (ROOT / "Makefile").read_text()
READS = {target: set(names.split()) for target, names in re.findall(r"^READS_([a-z-]+) := (.*)", TEXT, re.MULTILINE)}
TARGETS = re.findall(r"^([a-z-]+):[^=\n]*##", TEXT, re.MULTILINE)


def make(*words: str, **environment: str) -> tuple[int, str, list[str]]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    call = ["make", "--dry-run", *words]
    done = subprocess.run(call, cwd=ROOT, env=clean | environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["experiment", "COMPRESOR=topk"], "did you mean COMPRESSOR=topk?"),
        (["experiment", "TOPOLOGY=wan100m"], "did you mean TOPO=wan100m?"),
        (["experiment", "STEPS=10"], 'write SET="steps=10"'),
        (["experiment", "TOPO=lan", "STEP=10", "SET=seed=1"], 'write SET="seed=1 steps=10"'),
        (["experiment", "BATCH_SIZE=16"], 'write SET="batch_size=16"'),
        (["experiment", "topo.rate=5 Mbit/s"], "write SET=\"topo.rate='5 Mbit/s'\""),
        (["experiment", "compressor=topk"], "did you mean COMPRESSOR=topk?"),
        (["experiment", "EXECUTOR=ray"], "is not read by this target"),
        (["sweep", "TOPO=lan,wan1g"], 'write SET="topo=lan,wan1g"'),
        (["sweep", "ROOTLESS=1"], "is not read by this target"),
        (["report", "TOPO=lan"], "known: RUNS"),
        (["fuzz", "FUZ_S=3"], "did you mean FUZZ_S=3?"),
        (["lint", "FILES=a.py"], "FILES=a.py make lint"),
        (["STEPS=10"], "make help: STEPS=10"),
        (["reproduce", "SYSTM=dear"], "did you mean SYSTEM=dear?"),
        (["experiment", "MODEL=resnet's"], "did you mean WORKLOAD=resnet's?"),
    ],
)
def test_a_variable_that_is_not_read_is_told_what_to_write(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = " ".join(word for word in words if "=" not in word) or "help"
    reads = READS.get(targets, set())
    stray = [word for word in words if "=" in word and word.partition("=")[0] not in reads]
    given = next((word.removeprefix("SET=") for word in words if word.startswith("SET=")), "")
    make_variables.main([targets, " ".join(reads), given, *stray])
    (line,) = capsys.readouterr().out.split("\\n")
    assert said in line


@pytest.mark.parametrize("words", [["experiment", "MODEL=resnet's", "SET=seed=1"], ["STEPS=10"]])
def test_a_variable_that_is_not_read_is_status_2_and_one_line(words: list[str]) -> None:
    status, out, lines = make(*words)
    assert (status, out, len(lines)) == (2, "", 1), lines
    assert words[-1] in lines[0] or "did you mean WORKLOAD=resnet's?" in lines[0]


def test_every_variable_is_told_at_once() -> None:
    status, _, lines = make("experiment", "STEPS=10", "COMPRESOR=topk")
    assert (status, len(lines)) == (2, 2)


@pytest.fixture(scope="module")
def no_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PATH of a machine without Python."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("make", "bash", "sed", "awk", "id"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    return str(folder)


@pytest.mark.parametrize("target", [target for target in TARGETS if target not in ("help", "clean")])
def test_each_target_refuses_a_stray_one(target: str, no_python: str) -> None:
    status, _, lines = make(target, "TOPOO=lan", PATH=no_python)
    assert status == 2 and f"make {target}: TOPOO: unknown" in lines[0]


def test_make_and_the_environment_keep_theirs() -> None:
    status, out, _ = make("experiment", "TOPO=lan", "SHELL=/bin/bash", COMPRESOR="topk", STEPS="3")
    assert status == 0 and "topo='lan'" in out and "topk" not in out
    assert make("--environment-overrides", "help", STEPS="3")[0] == 0
    assert make("experiment", COMPRESSOR="topk")[1].count("compressor='topk'") == 1


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (("TOPO=lan", "ARGS=--dir $HOME"), {}),
        (("SET=workload.args=[${oc.env:HOME}]",), {}),
        (("TOPO=$(touch x).yaml",), {}),
        ((), {"ARGS": "--dir $HOME"}),
    ],
)
def test_what_make_would_expand_is_refused(words: tuple[str, ...], environment: dict[str, str]) -> None:
    status, _, said = make("experiment", *words, **environment)
    assert status == 2 and len(said) == 1 and "make takes what follows a $ for a variable of its own" in said[0]


def test_a_doubled_dollar_is_one_of_the_shell() -> None:
    status, printed, _ = make("experiment", "TOPO=lan", "ARGS=--dir $$HOME '$$5'")
    assert status == 0 and printed.splitlines()[-1].endswith("-- --dir $HOME '$5'")


@pytest.mark.parametrize(
    "path", ["./a b/net.yaml", "./it's/a,b.yaml", './a"b/x=y.yaml', "./a;b/n.yaml", "./$$HOME/n.yaml"]
)
def test_a_path_reaches_the_command_as_it_is(path: str) -> None:
    for words in (["experiment", f"TOPO={path}"], ["sweep", f"SWEEP={path}"]):
        line = make(*words)[1].splitlines()[-1]
        typed = path.replace("$$", "$")
        assert {typed, f"topo={typed}"} & set(shlex.split(line)), line


def test_what_is_said_without_python_is_the_known_ones(no_python: str) -> None:
    status, _, lines = make("report", "TOPO=lan", PATH=no_python)
    assert (status, len(lines)) == (2, 1) and "TOPO: unknown; known: RUNS" in lines[0]


@pytest.mark.parametrize("target", sorted(READS))
def test_a_target_reads_what_its_list_says_and_nothing_else(target: str) -> None:
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", TEXT, re.MULTILINE)
    assert recipe is not None
    found = set(_variables(recipe[1]))
    ours = set(re.findall(r"^(\w+) :?= ", TEXT, re.MULTILINE))
    assert found - ours == READS[target] - {"PYTEST_ADDOPTS"}


def _variables(text: str) -> list[str]:
    names = re.findall(r"\$\((?:call given,|if )?(?:\$\()?([A-Z_]+)", text) + re.findall(
        r"filter-out 0,\$\(([A-Z_]+)", text
    )
    defined = {name: re.search(rf"^{name} (?:=|:=) ((?:.*\\\n)*.*)", TEXT, re.MULTILINE) for name in names}
    return names + [inner for match in defined.values() if match for inner in _variables(match[1])]
