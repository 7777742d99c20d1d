"""README and docs/commands.md: commands exist, or are named here with the test that runs them; figures are recorded."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
PAGES = (README, (ROOT / "docs" / "commands.md").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
CONF = ROOT / "experiments" / "conf"
NO_CHOICE = {"WORKLOAD": {"hand"}, "TRANSFORM": {"none"}}
"""Files that the README does not count: chosen by `longhaul up` alone, and no change."""
GROUPS = ("topo", "strategy", "compressor", "workload", "device", "transform")

TOUR = "tests/slow/test_readme_tour.py::test_a_command_of_the_readme_works"
EXECUTED: dict[str, str] = {
    ".venv/bin/torchrun --nproc-per-node 2 -m testbed.worker torchrun workload=digits topo=lan steps=20": TOUR,
}
"""Other commands, with the test (file::name) that executes them."""


def commands() -> Iterator[str]:
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                command = shlex.split(line.removeprefix("$ "), comments=True)
                if command:
                    yield shlex.join(command)


COMMANDS = sorted(set(commands()))


def test_the_first_block_of_the_readme_is_the_two_commands() -> None:
    first = README.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert [line.partition("#")[0].strip() for line in first] == ["make experiment TOPO=wan1g", "make test"]


def test_numbers_of_choices_are_those_of_the_files() -> None:
    rows = re.findall(r"^\| \[\w+\]\(docs/[^)]+\), `([A-Z]+)=` \| (\d+) \| `?(\w+)`? \|", README, re.MULTILINE)
    assert len(rows) == 5
    parts = yaml.safe_load((CONF / "config.yaml").read_text())["defaults"]
    defaults = {group: name for entry in parts if isinstance(entry, dict) for group, name in entry.items()}
    for group, number, default in rows:
        assert default == defaults[group.lower()], group
        files = {path.stem for path in (CONF / group.lower()).glob("*.yaml")}
        no_choice = NO_CHOICE.get(group, set())
        assert no_choice <= files and int(number) == len(files - no_choice), group
    (strategies, compressors), (topologies,) = (
        re.findall(r"(\d+) strategies and (\d+) compressor", README)[0],
        re.findall(r"(\d+) topologies, or your own", README),
    )
    numbers = {group: number for group, number, _ in rows}
    assert (strategies, compressors, topologies) == (numbers["STRATEGY"], numbers["COMPRESSOR"], numbers["TOPO"])


def test_what_the_readme_says_of_the_table_stands_in_it() -> None:
    rows = {
        cells[0].strip("`"): cells[1:]
        for line in README.splitlines()
        if re.match(r"\| `[a-z]", line) and len(cells := line.strip("| ").split(" | ")) == 9
    }
    assert set(rows) == {"none", "fp16", "int8", "topk", "powersgd", "sz3"}
    assert f"`topk` reaches 97 % accuracy in {rows['topk'][1]}, uncompressed training in {rows['none'][1]}." in README
    assert f"`powersgd` sends {float(rows['powersgd'][6]):.0f}x less payload" in README


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


ROOT_PAGES = ["README.md", "CONTRIBUTING.md", "LIMITATIONS.md", "SECURITY.md"]
DOCS = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")]
_PATH = re.compile(r"`((?:testbed|compressors|topologies|dashboards|experiments|scripts|tests|docs)/[\w/.-]+)`")


@pytest.mark.parametrize("name", sorted([*ROOT_PAGES, *DOCS]))
def test_paths_in_text_are_there(name: str) -> None:
    said = [path for path in _PATH.findall((ROOT / name).read_text()) if "NAME" not in path]
    assert [path for path in said if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", [*ROOT_PAGES, "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text()
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target:
            assert (ROOT / target).exists(), f"{name} links to {target}"


def test_the_readme_stays_short_and_limitations_are_twelve() -> None:
    assert len(README.splitlines()) <= 125
    numbers = re.findall(r"^(\d+)\. \*\*", (ROOT / "LIMITATIONS.md").read_text(), re.MULTILINE)
    assert numbers == [str(number) for number in range(1, 13)]


def test_limits_that_limitations_lists_are_sections_of_their_pages() -> None:
    for page in re.findall(r"\]\(([\w/.-]+)#limits\)", (ROOT / "LIMITATIONS.md").read_text()):
        assert "\n## Limits\n" in (ROOT / page).read_text(), page
