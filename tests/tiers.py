"""Which of make's targets runs a test: `make test`, `make test-all` (these and more), `make test-slow`.

The folder of a test decides, unless `@pytest.mark.tier("test")`, `tier("all")` or `tier("slow")` on a test, a parameter
or a file does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

TESTS = Path(__file__).resolve().parent
TIERS: Final = ("test", "all", "slow")
"""A test belongs to one. `make test-all` runs the first two, in this order."""
FOLDERS: Final = {
    "unit": "test",
    "contract": "test",
    "boundary": "test",
    "distributed": "all",
    "emulation": "all",
    "slow": "slow",
}
"""A new test that starts neither ranks nor networks is in the first tier at once; one that does has to be chosen."""


def tier_of(item: pytest.Item) -> str | None:
    """None in tests/netem, which has a kernel and a target of its own.

    Raises:
        pytest.UsageError: the mark names no tier.
    """
    folder = item.path.relative_to(TESTS).parts[0]
    mark = item.get_closest_marker("tier")
    if mark is None or folder == "slow":  # whose tests may derive from marked ones
        return FOLDERS.get(folder)
    if len(mark.args) != 1 or mark.args[0] not in TIERS:
        raise pytest.UsageError(f"{item.nodeid}: tier{mark.args}: must be one of {', '.join(TIERS)}")
    return str(mark.args[0])


def lies_in_other_tiers(file: Path, tier: str | None) -> bool:
    """Whether no test in `file` can be of `tier`, by its folder and because it has no mark of its own.

    Of folders whose tests start processes this is not known by text: they inherit marks from others.
    """
    if tier is None or file.suffix != ".py" or TESTS not in file.parents:
        return False
    own = FOLDERS.get(file.relative_to(TESTS).parts[0])
    if own == "slow":
        return tier != own
    return own == "test" != tier and "mark.tier(" not in file.read_text()


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of the slow folder first: they type commands that insist on the machine, which emulation tests
    hold from their first to their last."""
    return sorted(items, key=lambda item: TESTS / "slow" not in item.path.parents)
