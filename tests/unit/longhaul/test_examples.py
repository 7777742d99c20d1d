"""Every example in a docstring of the package gives what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import longhaul

# not by way of tests.oracles: these tests are also executed next to the wheel alone
RUNS = Path(__file__).resolve().parents[2] / "data" / "oracles" / "runs"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MODULES = ["longhaul", *(f"longhaul.{module.name}" for module in pkgutil.iter_modules(longhaul.__path__))]
WITHOUT = {"longhaul.starting"}
"""Modules whose functions start runs; tests/slow executes them."""


@pytest.mark.filterwarnings("ignore:left out")
@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str, tmp_path: Path) -> None:
    known = {"RUNS": str(RUNS), "FIGURES": tmp_path}
    found = doctest.testmod(importlib.import_module(name), extraglobs=known, optionflags=FLAGS)
    assert found.failed == 0
    assert (found.attempted == 0) == (name in WITHOUT)


def test_what_is_public_is_documented_with_an_example_or_starts_runs() -> None:
    for name in ("runs", "Run", "compare", "table", "plot"):
        assert ">>> " in (getattr(longhaul, name).__doc__ or ""), name
