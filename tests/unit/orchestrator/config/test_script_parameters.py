"""Parameters of workload=script: arguments as they were typed, no key that nobody knows, a script or a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.orchestrator.config.config import Resolved, resolve
from testbed.orchestrator.config.programs import program_of
from testbed.orchestrator.config.script_parameters import KNOWN


@pytest.fixture
def script(tmp_path: Path) -> str:
    tmp_path.chmod(0o755)
    path = tmp_path / "train.py"
    path.write_text("")
    path.chmod(0o644)
    return f"workload.script={path}"


def asked(script: str, *overrides: str, words: tuple[str, ...] = ()) -> Resolved:
    return resolve(["workload=script", script, *overrides], words=words)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (
            "[--amp,true,--x,null,--sha,12e4,--n,10_000]",
            ["--amp", "true", "--x", "null", "--sha", "12e4", "--n", "10_000"],
        ),
        ("[]", []),
        ("['${HOME}',a b,${x}]", ["${HOME}", "a b", "${x}"]),
        ("[ --epochs , 2 ]", ["--epochs", "2"]),
        ('["--lr=0.1",--name,"a, b]"]', ["--lr=0.1", "--name", "a, b]"]),
        (
            "[--hex,0x1F,--oct,007,--f,1e-3,--s,.5,--i,inf]",
            ["--hex", "0x1F", "--oct", "007", "--f", "1e-3", "--s", ".5", "--i", "inf"],
        ),
        ("['2',-1,+3,True,nan]", ["2", "-1", "+3", "True", "nan"]),
    ],
)
def test_arguments_are_what_was_typed(script: str, typed: str, found: list[str]) -> None:
    resolved = asked(script, f"workload.args={typed}")
    assert resolved.spec.workload.params["args"] == found
    assert program_of(resolved.spec).command()[-len(found) or 99 :] == found or not found


@pytest.mark.parametrize("typed", ["5", "'--epochs 2'", "null", "true", "{a: 1}", "[[--a,1]]", "[{a: 1}]"])
def test_what_is_no_list_of_texts_is_refused(script: str, typed: str) -> None:
    (fault,) = asked(script, f"workload.args={typed}").faults
    assert fault.startswith("workload.args=") and "must be a list of texts, as in [--epochs,2]" in fault


@pytest.mark.parametrize("typed", ["[--lr=0.1]", "[--a=b,--c]", "[a;b"])
def test_what_cannot_be_read_is_told_how_to_be_written(script: str, typed: str) -> None:
    (fault,) = asked(script, f"workload.args={typed}").faults
    assert '["--lr=0.1"]; or put them behind --, as in -- --lr=0.1' in fault


@pytest.mark.parametrize(
    "words",
    [
        ("--lr=0.1", "--epochs", "2"),
        ("${HOME}", "a b", "", "'", '"', "\\", "--", "x=[1,2]", "ä\n", "null", "*"),
        ("-h", "--runs", "elsewhere"),
    ],
)
def test_the_command_line_behind_two_hyphens_is_untouched(script: str, words: tuple[str, ...]) -> None:
    spec = asked(script, words=words).spec
    assert tuple(program_of(spec).command()[-len(words) :]) == words
    assert spec.workload.params["args"] == list(words)


def test_arguments_are_given_once(script: str) -> None:
    (fault,) = asked(script, "workload.args=[--epochs,2]", words=("--lr", "1")).faults
    assert fault == "workload.args=[--epochs,2] -- --lr 1: the script's arguments are given twice; give them once"


@pytest.mark.parametrize("workload", ["digits", "hand", "replay"])
def test_only_a_script_takes_a_command_line(workload: str) -> None:
    faults = resolve([f"workload={workload}"], words=("--epochs", "2")).faults
    assert "-- --epochs 2: only workload=script takes the command line of a script" in faults


@pytest.mark.parametrize(
    ("key", "near"), [("arg", "args"), ("scrpt", "script"), ("modul", "module"), ("shuffle", None)]
)
def test_unknown_keys_are_refused_with_the_known_ones(script: str, key: str, near: str | None) -> None:
    (fault,) = asked(script, f"workload.{key}=3").faults
    assert fault.startswith(f"workload.{key}=3: unknown parameter") and fault.endswith(", ".join(sorted(KNOWN)))
    assert near is None or f"did you mean {near}?" in fault


def test_nodes_by_hand_have_no_parameters() -> None:
    assert resolve(["workload=hand", "workload.shell=sh"]).faults == (
        "workload.shell=sh: unknown parameter; known: none",
    )


def test_a_module_is_found_where_python_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    files = {
        "package.train": "package/train.py",
        "runnable": "runnable/__main__.py",
        "plain": "plain.py",
        "no.init.here": "no/init/here.py",
    }
    for name in ("package/__init__.py", *files.values()):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("raise SystemExit('imported')\n")
    for module, file in files.items():
        resolved = resolve(["workload=script", f"workload.module={module}"], words=("--lr=1",))
        assert resolved.faults == ()
        program = program_of(resolved.spec)
        assert program.command()[-3:] == ["-m", module, "--lr=1"]
        assert program.working_directory() == tmp_path
        assert resolved.spec.workload.params["file"] == str(tmp_path / file)


@pytest.mark.parametrize(
    ("module", "fault"),
    [
        ("package", "a package without a module __main__"),
        ("package.none", "no such module in"),
        ("none", "no such module in"),
        ("'a b'", "must be the name of a module"),
        ("train.py", "no such module in"),
        ("'-m x'", "must be the name of a module"),
    ],
)
def test_a_module_that_python_would_not_run_is_refused(
    module: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (found,) = resolve(["workload=script", f"workload.module={module}"]).faults
    assert found.startswith("workload.module=") and fault in found


def test_a_script_and_a_module_are_one_too_many(script: str) -> None:
    (fault,) = asked(script, "workload.module=plain").faults
    assert fault.endswith("give one of the two")


def test_the_callers_variables_are_part_of_the_run(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = []
    for rate in ("0.5", "0.1"):
        monkeypatch.setenv("LR", rate)
        monkeypatch.setenv("HF_TOKEN", "hidden")
        spec = asked(script).spec
        hashes.append(spec.hash)
        assert spec.workload.params["environment"]["LR"] == rate
        assert "hidden" not in str(spec.to_json())
        environment = program_of(spec).environment(0, "10.0.0.1", "eth0")
        assert (environment["LR"], environment["HF_TOKEN"]) == (rate, "hidden")
    assert hashes[0] != hashes[1]
    monkeypatch.setenv("TERM", "other")
    monkeypatch.setenv("SSH_TTY", "/dev/pts/9")
    assert asked(script).spec.hash == hashes[1]
