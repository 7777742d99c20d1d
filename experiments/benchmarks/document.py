"""docs/benchmarks.md: the tables between its markers, from the JSON files; the text around them is written by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping

from experiments.benchmarks import tables
from experiments.benchmarks.harness import Results, code_hash, machine
from testbed.orchestrator.clone import CLONE

PAGE = CLONE / "docs" / "benchmarks.md"


def write(results: Mapping[str, Results]) -> None:
    text = PAGE.read_text()
    for name, one in results.items():
        if one.points:
            text = between(text, name, tables.of(name, list(one.found())))
    text = between(text, "machine", _machine(results))
    PAGE.write_text(text)


def between(text: str, name: str, content: str) -> str:
    """`content` in place of what stands between the markers of `name`.

    Raises:
        ValueError: they are not there.
    """
    pattern = re.compile(rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", re.DOTALL)
    found, count = pattern.subn(lambda match: f"{match[1]}{content}\n{match[2]}", text)
    if count != 1:
        raise ValueError(f"{PAGE}: the markers of {name} are not there once")
    return found


def _machine(results: Mapping[str, Results]) -> str:
    found = machine()
    days = sorted(point["measured_at"][:10] for one in results.values() for point in one.points.values())
    disturbed = sum(point["is_disturbed"] for one in results.values() for point in one.points.values())
    codes = {name: code_hash(name) for name in results}
    stale = sum(p["code_hash"] != codes[name] for name, one in results.items() for p in one.points.values())
    when = f"{days[0]} to {days[-1]}" if days else "not yet"
    shapers = sorted({p["result"].get("shaper", "") for one in results.values() for p in one.points.values()} - {""})
    return (
        f"{found['cores']} cores ({found['cpu']}), {found['memory_bytes'] / 2**30:.1f} GiB,"
        f" Linux {found['kernel']}, shaper {', '.join(shapers) or '-'}; measured {when}."
        f" {len(days)} points, {disturbed} of them disturbed by other programs of the machine and marked so,"
        f" {stale} measured with older code than this."
    )
