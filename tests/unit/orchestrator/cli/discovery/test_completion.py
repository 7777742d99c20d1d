"""Completion: what may come next in a line, and that real shells ask for it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.orchestrator.cli.discovery import catalogue, completion
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import names
from testbed.orchestrator.machine.clone import CLONE

BREAKS = " \t\n\"'><=;|&(:"
"""COMP_WORDBREAKS of bash."""


def completed(capsys: pytest.CaptureFixture[str], line: str, breaks: str = "") -> list[str]:
    assert main(["completion", "bash", f"--line={line}", f"--breaks={breaks}"]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("longhaul ru", ["run"]),
        ("longhaul show str", ["strategies"]),
        ("longhaul show compressors topk", ["topk"]),
        ("longhaul show compressor topk", ["topk"]),
        ("longhaul new comp", ["compressor"]),
        ("longhaul run topo=wan1", ["topo=wan100m", "topo=wan10g", "topo=wan10m", "topo=wan1g"]),
        ("longhaul run topo=wan100m workl", ["workload.", "workload="]),
        ("longhaul run strategy=diloco strategy.sync", ["strategy.sync_every="]),
        ("longhaul run strategy=diloco strategy.sync_every=", ["strategy.sync_every=50"]),
        ("longhaul run strategy=diloco strategy.replicas=", ["strategy.replicas=region", "strategy.replicas=worker"]),
        ("longhaul run strategy.overlap=", ["strategy.overlap=false", "strategy.overlap=true"]),
        ("longhaul run strategy.clip_norm=", ["strategy.clip_norm=null"]),
        ("longhaul run topo.rate=", ["topo.rate='1 Gbit/s'"]),
        ("longhaul topologies us3 topo.mat", ["topo.matrix="]),
        ("longhaul run shaper=n", ["shaper=netem", "shaper=nfqueue"]),
        ("longhaul sweep sm", ["smoke"]),
        ("longhaul sweep compressor=none,dg", ["compressor=none,dgc"]),
        ("longhaul sweep --executor ", ["local", "ray", "slurm"]),
        ("longhaul laws topk den", ["density="]),
        ("longhaul list verdict=su", ["verdict=suspect"]),
        ("longhaul list verdict=valid,su", ["verdict=valid,suspect"]),
        ("longhaul run --qu", ["--quiet"]),
        ("sudo -E .venv/bin/longhaul run transform=fr", ["transform=freeze"]),
        ("longhaul run 'topo=us", ["topo=us3"]),
        ("make exper", ["experiment"]),
        ("make experiment TOPO=us", ["TOPO=us3"]),
        ("make experiment SE", ["SEED=", "SET="]),
        ("make sweep SWEEP=sm", ["SWEEP=smoke"]),
        ("longhaul nosuch ", []),
        ("longhaul run strategy=nosuch strategy.", []),
        ("longhaul run strategy.nosuch=", []),
        ("longhaul exec node -- l", []),
        ("longhaul new sweep name ", []),
        ("ls ", []),
        ("", []),
    ],
)
def test_what_may_come_next(line: str, found: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert completed(capsys, line) == found


def test_every_command_and_every_key_is_completed(capsys: pytest.CaptureFixture[str]) -> None:
    found = completed(capsys, "longhaul ")
    assert {"run", "sweep", "show", "new", "completion", "clean", "--version"} <= set(found)
    keys = completed(capsys, "longhaul run ")
    assert {"topo=", "strategy=", "steps=", "seed=", "metrics_port=", "compressor.", "device="} <= set(keys)


@pytest.mark.parametrize("group", ["strategy", "compressor", "topo", "device", "transform", "workload"])
def test_every_parameter_and_every_choice_of_a_plugin_is_completed(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(capsys, f"longhaul run {group}=") == [f"{group}={name}" for name in names(group)]
    found = catalogue.descriptions(group)
    for name in (*list(found)[:3], *list(found)[-3:]):
        keys = completed(capsys, f"longhaul run {group}={name} {group}.")
        assert keys == sorted(f"{group}.{parameter['name']}=" for parameter in found[name]["parameters"])
    choices = {(name, one["name"]): one["choices"] for name in found for one in found[name]["parameters"]}
    for name, parameter in [key for key, values in choices.items() if values][:5]:
        offered = completed(capsys, f"longhaul run {group}={name} {group}.{parameter}=")
        assert {f"{group}.{parameter}={choice}" for choice in choices[name, parameter]} <= set(offered)


def test_words_are_cut_where_the_shell_cuts_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert completed(capsys, "longhaul run topo=us", BREAKS) == ["us3"]
    assert completed(capsys, "longhaul run topo=us", BREAKS.replace("=", "")) == ["topo=us3"]


def test_files_of_the_users_are_completed_and_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("open('ran', 'w')\nraise SystemExit(3)\n")
    (tmp_path / "mine.yaml").write_text("_target_: mine.Mine\nlevel: 3\nfeedback: auto\n")
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path)
    assert completed(capsys, "longhaul run compressor=mi") == ["compressor=mine.yaml"]
    assert completed(capsys, "longhaul run compressor=./") == ["compressor=./deeper/", "compressor=./mine.yaml"]
    line = "longhaul run compressor=./mine.yaml compressor."
    assert completed(capsys, line) == ["compressor.feedback=", "compressor.level="]
    (tmp_path / "mine.yaml").write_text("_target_: [half")
    assert completed(capsys, line) == []
    assert completed(capsys, "longhaul run --trust mine.") == ["mine.py", "mine.yaml"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deeper", "mine.py", "mine.yaml"]


def test_run_ids_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = "20261128T120000Z-us3-ddp-none-abc"
    (tmp_path / run_id).mkdir()
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(completion, "RUNS_ROOT", tmp_path)
    assert completed(capsys, "longhaul clean 2") == [run_id]
    assert completed(capsys, "longhaul predict --run ") == [run_id]
    assert completed(capsys, "longhaul run start_from=2") == [f"start_from={run_id}"]


def _script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


_TRY = """
try() { COMP_LINE=$1 COMP_POINT=${#1} COMPREPLY=(); "$2"; printf '%s\\n' "${COMPREPLY[@]}" --; }
"""


def test_a_real_bash_completes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "script").write_text(_script("bash", capsys) + _TRY)
    script = f"""
    . {shlex.quote(str(tmp_path / "script"))}
    complete -p longhaul make
    cd {shlex.quote(str(CLONE))}
    try 'longhaul run topo=wan100' _longhaul
    try 'longhaul run strategy=diloco strategy.collective=hierarchical_' _longhaul
    try 'sudo .venv/bin/longhaul show topo' _longhaul_sudo
    try 'make experiment TOPO=us' _longhaul_make
    cd /
    try 'make experiment TOPO=us' _longhaul_make
    """
    ended = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=60, check=True, env=os.environ
    )
    assert ended.stdout.splitlines() == [
        "complete -o bashdefault -o default -F _longhaul longhaul",
        "complete -o bashdefault -o default -F _longhaul_make make",
        *("wan100m", "--", "hierarchical_two_shot", "--", "topologies", "--", "us3", "--", "--"),
    ]
    assert ended.stderr == ""


def test_another_clone_in_the_current_folder_is_not_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "testbed").mkdir()
    (tmp_path / "testbed" / "__init__.py").write_text("raise SystemExit(9)\n")
    (tmp_path / "script").write_text(_script("bash", capsys) + _TRY)
    command = [*("bash", "--norc", "-c"), ". ./script; try 'longhaul comple' _longhaul"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines() == ["completion", "--"]


def test_the_part_for_zsh_is_read_by_zsh(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = _script("zsh", capsys)
    assert (
        "@" not in text.replace("(@", "") and sys.executable in text and text.count("compdef _longhaul longhaul") == 1
    )
    if (zsh := shutil.which("zsh")) is None:
        pytest.skip("zsh is not installed")
    (tmp_path / "script").write_text(text)
    script = "compdef() { print $* }; . ./script; whence -w _longhaul"
    ended = subprocess.run([zsh, "-fc", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines() == ["_longhaul longhaul", "_longhaul: function"]
