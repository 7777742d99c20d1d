"""Two runs on one machine: the second must be told to share, and the first finds out."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from testbed.core.errors import MachineError
from testbed.core.record.run_directory import RunDir, write_json
from testbed.orchestrator.machine import lock as module
from testbed.orchestrator.machine.lock import held_if_free, machine_lock
from testbed.orchestrator.run.supervisor import _record_sharing


@pytest.fixture(autouse=True)
def locks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("RUNTIME_ROOT", "."), ("MACHINE_LOCK", "machine.lock"), ("SHARED_LOCK", "shared.lock")):
        monkeypatch.setattr(module, name, tmp_path / value)


@pytest.mark.parametrize("first_shares", [False, True])
def test_a_second_run_must_be_told_to_share(first_shares: bool) -> None:
    with machine_lock(share=first_shares):
        with pytest.raises(MachineError, match="another run is going on"), machine_lock(share=False):
            pass
        with machine_lock(share=True) as second:
            assert second.is_shared
    with machine_lock(share=False) as alone:
        assert not alone.is_shared


def test_who_came_alone_finds_out_that_somebody_shares() -> None:
    with machine_lock(share=False) as first:
        first.look()
        assert not first.is_shared
        with machine_lock(share=True):
            first.look()
        first.look()
        assert first.is_shared, "what was measured beside another stays so when that one has gone"


def test_looking_does_not_keep_others_out() -> None:
    with machine_lock(share=False) as first:
        first.look()
        with machine_lock(share=True), machine_lock(share=True):
            first.look()
            assert first.is_shared


def test_whoever_measures_holds_the_machine_unless_another_process_does(tmp_path: Path) -> None:
    with held_if_free() as is_held:
        assert is_held
        with pytest.raises(MachineError), machine_lock(share=False):
            pass
    with machine_lock(share=False), held_if_free() as is_held:
        assert is_held, "this process has it already"
    with (tmp_path / "machine.lock").open("w") as another:
        fcntl.flock(another, fcntl.LOCK_EX)
        with held_if_free() as is_held:
            assert not is_held
    with machine_lock(share=False):
        pass


def test_the_record_of_the_first_says_so_too(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with machine_lock(share=False) as first:
        _record_sharing(run, first)  # it ended before it wrote anything
        write_json(run.provenance, {"commit": "abc", "machine_shared": False})
        _record_sharing(run, first)
        assert run.read_json(run.provenance) == {"commit": "abc", "machine_shared": False}
        with machine_lock(share=True):
            first.look()
        _record_sharing(run, first)
    assert run.read_json(run.provenance) == {"commit": "abc", "machine_shared": True}
