"""Which tests the targets of make run: by folder, by mark, and what the first tier has to hold."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tiers import FOLDERS, TESTS, TIERS, in_order, lies_in_other_tiers, tier_of

OF_ITS_OWN = {"netem"}
"""Has a kernel and a target of its own."""
EMULATED = {
    "the main job": "test_run.py::test_the_summary_is_complete_and_adds_up",
    "a compressor": "test_torchrun.py::test_torchrun_gives_the_losses_of_the_emulated_run_of_the_same_spec",
    "a kill -9": "test_endings.py::TestEndings::"
    "test_kill_9_leaves_nothing_and_the_next_command_seals_it[supervisor alone]",
    "bad input": "test_run.py::test_bad_input_is_refused_all_at_once_before_anything_is_built",
    "a network event": "test_programs.py::test_training_goes_on_after_a_partition",
    "a user's script": "test_programs.py::test_a_plain_ddp_script_runs_unmodified",
}


def _item(file: str, *given: object) -> Any:
    mark = pytest.mark.tier(*given).mark if given else None
    return SimpleNamespace(path=TESTS / file, nodeid=file, get_closest_marker=lambda name: mark)


def test_every_folder_of_tests_has_a_tier() -> None:
    there = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")}
    assert there == FOLDERS.keys() | OF_ITS_OWN and set(FOLDERS.values()) == set(TIERS)


def test_a_mark_goes_before_the_folder_but_in_the_slow_one() -> None:
    assert tier_of(_item("unit/test_a.py")) == "test" and tier_of(_item("unit/test_a.py", "all")) == "all"
    assert (
        tier_of(_item("distributed/test_a.py")) == "all" and tier_of(_item("distributed/test_a.py", "test")) == "test"
    )
    assert tier_of(_item("slow/test_a.py", "test")) == "slow"
    assert tier_of(_item("netem/test_a.py")) is None
    for given in (("fast",), ("test", "all")):
        with pytest.raises(pytest.UsageError, match="must be one of test, all, slow"):
            tier_of(_item("unit/test_a.py", *given))


def test_files_that_have_no_test_of_a_tier_are_not_read() -> None:
    marked, plain = TESTS / "contract" / "test_laws.py", TESTS / "unit" / "core" / "test_units.py"
    assert [lies_in_other_tiers(marked, tier) for tier in (None, *TIERS)] == [False] * 4
    assert [lies_in_other_tiers(plain, tier) for tier in (None, *TIERS)] == [False, False, True, True]
    slow = TESTS / "slow" / "test_docker.py"
    assert [lies_in_other_tiers(slow, tier) for tier in (None, *TIERS)] == [False, True, True, False]


def test_slow_tests_come_before_those_that_hold_the_machine_to_the_end() -> None:
    files = ["contract/test_a.py", "emulation/test_a.py", "emulation/test_b.py", "slow/test_a.py", "slow/test_b.py"]
    assert [item.nodeid for item in in_order([_item(file) for file in files])] == files[3:] + files[:3]


def test_the_first_tier_has_emulated_runs_of_each_kind() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--tier", "test", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "tests/emulation"], cwd=TESTS.parent, capture_output=True, text=True, timeout=250, check=False
    )
    if "need root" in done.stdout:
        pytest.skip("without root they are deselected")
    for what, name in EMULATED.items():
        assert f"tests/emulation/{name}" in done.stdout.splitlines(), f"{what}: {done.stdout}"
