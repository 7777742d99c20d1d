"""docs/traps.md is complete: every trap once, each with tests that exist or a reason for having none."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "traps.md"
TRAPS = [f"T{number}" for number in range(1, 26)]
MIN_REASON_CHARACTERS = 20


def sections(text: str) -> list[tuple[str, str]]:
    """(name, text) of each trap, in the page's order."""
    parts = re.split(r"^## (T\d+): .*$", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def entry(section: str, label: str) -> str | None:
    """What stands in a list after `label`, on one line."""
    found = re.search(rf"^- {label}:(.*(?:\n  .*)*)", section, re.MULTILINE)
    return " ".join(found.group(1).split()) if found else None


@functools.cache
def named_tests(path: Path) -> frozenset[str]:
    """Those of a class by `Class::test`."""
    tree = ast.parse(path.read_text())
    classes = [(f"{node.name}::", node.body) for node in tree.body if isinstance(node, ast.ClassDef)]
    return frozenset(
        f"{prefix}{node.name}"
        for prefix, body in [("", tree.body), *classes]
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def faults(text: str) -> Iterator[str]:
    found = sections(text)
    if [name for name, _ in found] != TRAPS:
        listed = ", ".join(name for name, _ in found)
        yield f"the traps are {listed}; they should be {TRAPS[0]} to {TRAPS[-1]}, once each"
    for name, section in found:
        for label in ("Trap", "Here"):
            if not entry(section, label):
                yield f"{name}: no line '- {label}:'"
        yield from (f"{name}: {fault}" for fault in faults_of_tests(section))
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target and not (PAGE.parent / target).exists():
            yield f"it links to {target}, which is not there"


def faults_of_tests(section: str) -> Iterator[str]:
    named, reason = entry(section, "Test"), entry(section, "No test")
    if named is None:
        if len(reason or "") < MIN_REASON_CHARACTERS:
            yield "names no test and says not why"
        return
    words = re.findall(r"`([^`]+)`", named)
    if not words:
        yield "names no test"
    for word in words:
        file, _, test = word.partition("::")
        path = ROOT / file
        if not path.is_file():
            yield f"{file} is not there"
        elif test not in named_tests(path):
            yield f"{file} has no test {test!r}"


def test_every_trap_has_a_test_that_exists_or_a_reason() -> None:
    assert list(faults(PAGE.read_text())) == []


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (("## T7: ", "## About "), "the traps are"),
        (("## T7: ", "## T8: "), "the traps are"),
        (("- Trap: at rates", "- At rates"), "T7: no line '- Trap:'"),
        (
            ("test_a_round_trip_is_halved_once", "test_a_round_trip_is_doubled"),
            "T2: tests/unit/core/spec/test_topology.py",
        ),
        (("tests/unit/core/spec/test_topology.py::", "tests/unit/core/test_topologies.py::"), "T2: tests/unit/core"),
        (("- Test: `tests/emulation/test_traps.py::test_no_packet", "- Tests: `x::y"), "T13: names no test"),
        (("- Test: `tests/emulation/test_traps.py::test_no_packet", "- No test: no.\n`"), "T13: names no test"),
        (("](../testbed/core/units.py)", "](../testbed/units.py)"), "it links to ../testbed/units.py"),
    ],
)
def test_a_damaged_page_is_noticed(damage: tuple[str, str], fault: str) -> None:
    text = PAGE.read_text()
    assert damage[0] in text
    found = list(faults(text.replace(*damage)))
    assert any(line.startswith(fault) for line in found), found


def test_a_reason_may_stand_in_for_a_test() -> None:
    before, line, after = PAGE.read_text().partition("- Test: `tests/emulation/test_traps.py::test_no_packet")
    assert line
    rest = after.partition("\n")[2]
    assert list(faults(f"{before}- No test: whatever it is, it cannot be seen from here\n{rest}")) == []
    assert list(faults(f"{before}- No test: no\n{rest}")) == ["T13: names no test and says not why"]
