"""The README's commands exist: each is a target, a subcommand that parses, or named here with the test that runs it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
CONF = ROOT / "experiments" / "conf"
GROUPS = ("topo", "strategy", "compressor", "workload", "device", "transform")

TOUR = "tests/slow/test_readme_tour.py::test_a_command_of_the_readme_works"
EXECUTED: dict[str, str] = {
    ".venv/bin/torchrun --nproc-per-node 2 -m testbed.worker torchrun workload=digits topo=lan steps=20": TOUR,
}
"""Other commands of the README, with the test (file::name) that executes them."""


def commands() -> Iterator[str]:
    for block in re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            command = shlex.split(line.removeprefix("$ "), comments=True)
            if command:
                yield shlex.join(command)


COMMANDS = sorted(set(commands()))


def test_the_readme_has_commands() -> None:
    assert any(command.startswith("make experiment") for command in COMMANDS)
    assert any(command.startswith("make test") for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_exists(command: str) -> None:
    words = [w for w in shlex.split(command) if w != "sudo"]
    if words[:1] == ["make"]:
        check_make(words[1:])
    elif words[0].removeprefix(".venv/bin/") == "longhaul":
        check_longhaul(words[1:])
    elif words[0].removeprefix(".venv/bin/") in ("python", "python3") and words[1:3] == ["-m", "testbed"]:
        check_longhaul(words[3:])
    elif words[:2] == ["git", "clone"] or words[0] == "cd":
        pass
    else:
        assert command in EXECUTED, f"nothing executes {command!r}: add it to EXECUTED with its test"
        file, name = EXECUTED[command].split("::")
        assert f"def {name}(" in (ROOT / file).read_text()


def check_make(words: list[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    for word in words:
        name, is_variable, value = word.partition("=")
        if not is_variable:
            assert word in targets, f"make has no target {word}"
            continue
        assert re.search(rf"\b{name}\b", MAKEFILE), f"the Makefile knows no {name}"
        if name.lower() in GROUPS:
            check_choice(name.lower(), value)
        elif name == "SET":
            for override in shlex.split(value):
                assert "=" in override, f"{override} is not key=value"


def check_longhaul(words: list[str]) -> None:
    subcommand = next((word for word in words if not word.startswith("-")), None)
    asked = [subcommand] if subcommand else []
    done = subprocess.run(
        [sys.executable, "-m", "testbed", *asked, "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for word in words[1:]:
        key, is_override, value = word.partition("=")
        if word.startswith("--"):
            assert key in done.stdout, f"longhaul {subcommand} has no {key}"
        elif is_override and key in GROUPS:
            check_choice(key, value)


def check_choice(group: str, value: str) -> None:
    for choice in value.split(","):
        assert (CONF / group / f"{choice}.yaml").exists(), f"{group}={choice} does not exist"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "LIMITATIONS.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text()
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target:
            assert (ROOT / target).exists(), f"{name} links to {target}"
