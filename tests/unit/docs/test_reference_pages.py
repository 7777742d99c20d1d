"""The pages that list things have all there are, and say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from testbed.orchestrator.cli.main import _parser
from testbed.orchestrator.observation.verdict import judge

ROOT = Path(__file__).resolve().parents[3]
DOCS, CONF = ROOT / "docs", ROOT / "experiments" / "conf"
NOT_LISTED = {"workload": {"hand"}}  # chosen by `longhaul up` alone


def rows(page: str) -> str:
    return "\n".join(line for line in (DOCS / page).read_text().splitlines() if line.startswith("| "))


@pytest.mark.parametrize(
    ("page", "group"), [("strategies.md", "strategy"), ("workloads.md", "workload"), ("topologies.md", "topo")]
)
def test_every_one_of_a_group_has_its_row(page: str, group: str) -> None:
    named = {
        name
        for cell in re.findall(r"^\| ([^|]*) \|", rows(page), re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", cell)
    }
    there = {path.stem for path in (CONF / group).glob("*.yaml")} - NOT_LISTED.get(group, set())
    assert there <= named, f"{page} lacks {', '.join(sorted(there - named))}"


def test_usual_lengths_of_workloads_are_those_of_their_files() -> None:
    found = dict(re.findall(r"^\| `(\w+)`.*\| ([\d,]+) steps \|$", rows("workloads.md"), re.MULTILINE))
    assert len(found) >= 6
    for name, steps in found.items():
        run = yaml.safe_load((CONF / "workload" / f"{name}.yaml").read_text())["run"]
        assert run["steps"] == int(steps.replace(",", "")), name


def test_every_key_and_every_command_has_its_row() -> None:
    config = yaml.safe_load((CONF / "config.yaml").read_text())
    groups = [next(iter(entry)) for entry in config.pop("defaults") if isinstance(entry, dict)]
    listed = set(re.findall(r"`([a-z_]+)`", rows("commands.md")))
    assert set(groups) | set(config) <= listed
    (names,) = _parser()._subparsers._group_actions  # type: ignore[union-attr]
    assert set(names.choices or {}) <= listed


def test_the_rules_of_the_verdict_are_those_of_the_judge() -> None:
    assert judge.__doc__ is not None
    rules = [line for line in judge.__doc__.splitlines() if line.startswith("|")]
    assert len(rules) > 20
    assert "\n".join(rules) in (DOCS / "verdict.md").read_text()


def test_reasons_are_quoted_as_they_are_given() -> None:
    table = (DOCS / "verdict.md").read_text().partition("## When it is not valid")[2].partition("\n## ")[0]
    quoted = re.findall(r'"([^"]+)"', table)
    sources = "".join(path.read_text() for path in Path(judge.__file__).parent.glob("*_rules.py"))
    assert len(quoted) >= 7
    for text in quoted:
        assert text in sources or text.startswith("asked 1 Gbit/s"), text
