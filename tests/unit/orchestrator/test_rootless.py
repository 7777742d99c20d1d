"""Without root: what is lost is said, what cannot be done is refused, what the kernel forbids has its cure named."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError, MachineError
from testbed.core.record import run_directory
from testbed.core.record.run_directory import OWNER, RunDir, make_runtime_root, runtime_root
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.machine import checks as machine_checks
from testbed.orchestrator.machine import lock
from testbed.orchestrator.machine.clone import CLONE, environment
from testbed.orchestrator.machine.rights import OF_ROOT, ROOTLESS, Rights
from testbed.orchestrator.observation.verdict.unknowns import Unknowns
from testbed.orchestrator.run import preflight
from testbed.orchestrator.run.run_command import checked_spec

WITHOUT = Rights(rootless=True)
RESOURCES = {"memory": {"limit": 1}, "pids": {"limit": 1}}


def test_root_loses_nothing_and_a_user_is_told_each_loss() -> None:
    assert OF_ROOT.lost() == [] and OF_ROOT.environment() == {}
    told = "\n".join(WITHOUT.lost())
    for what in ("memory", "processes", "processor shares", "throttling", "net.core.rmem_max"):
        assert what in told


def test_real_time_priority_is_lost_unless_the_machine_grants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, is_lost in ((0, True), (9, True), (50, False), (resource.RLIM_INFINITY, False)):
        monkeypatch.setattr(
            "testbed.orchestrator.machine.rights.resource.getrlimit", lambda _, limit=limit: (limit, limit)
        )
        assert any("real-time priority" in line for line in WITHOUT.lost()) == is_lost


def test_nothing_is_limited_without_cgroups_and_devices_stay_shut() -> None:
    found = WITHOUT.limits("a", RESOURCES)
    assert found == {"resources": {"devices": [{"allow": False, "access": "rwm"}]}}
    limited = OF_ROOT.limits("a", RESOURCES)
    assert limited["cgroupsPath"] == "/a"
    assert limited["resources"] == {**found["resources"], **RESOURCES}


def test_namespaces_are_made_inside_one_of_users() -> None:
    assert {"--user", "--map-root-user"} <= set(WITHOUT.unshare())
    assert set(OF_ROOT.unshare()) == set(WITHOUT.unshare()) - {"--user", "--map-root-user"}


def test_what_only_root_can_do_is_refused_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(preflight, "run_checks", lambda **_: [])
    resolved = resolve(["topo=lan", "memory_limit='1 GB'", "runtime=docker"], runs_root=tmp_path)
    with pytest.raises(InputError) as caught:
        checked_spec(resolved, tmp_path, WITHOUT)
    assert [fault.split(":")[0] for fault in caught.value.faults] == ["--rootless", "memory_limit", "runtime=docker"]
    resolved = resolve(["topo=lan", "memory_limit='1 GB'", "workload=hand"], runs_root=tmp_path)
    assert checked_spec(resolved, tmp_path).memory_limit


def checks(monkeypatch: pytest.MonkeyPatch, features: set[str]) -> dict[str, machine_checks.Check]:
    monkeypatch.setattr(machine_checks, "kernel_features", lambda *_: frozenset(features))
    return {check.name: check for check in preflight.run_checks(metrics_port=None, rights=WITHOUT)}


def test_neither_root_nor_cgroups_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = checks(monkeypatch, {"sysfs"})
    assert not {"root", "cgroups", "overlayfs"} & found.keys()
    assert found["own /sys"].ok and "user namespace" in found
    assert not checks(monkeypatch, set())["own /sys"].ok


@pytest.mark.parametrize(
    ("name", "value", "cure"),
    [
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    ],
)
def test_what_forbids_user_namespaces_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str, cure: str
) -> None:
    monkeypatch.setattr(Rights, "unshare", lambda _: ["sh", "-c", "echo no such luck >&2; exit 1"])
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(f"{value}\n")
    check = preflight.user_namespace(WITHOUT, tmp_path)
    assert check.needed and not check.ok
    assert "no such luck" in check.found and cure in check.cure and "container" not in check.cure


def test_where_no_setting_forbids_them_it_is_a_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Rights, "unshare", lambda _: ["false"])
    assert "container" in preflight.user_namespace(WITHOUT, tmp_path).cure
    monkeypatch.setattr(Rights, "unshare", lambda _: ["no-such-program-of-ours"])
    assert not preflight.user_namespace(WITHOUT, tmp_path).ok
    monkeypatch.setattr(Rights, "unshare", lambda _: ["env"])
    assert preflight.user_namespace(WITHOUT, tmp_path).ok


def test_the_cure_for_not_being_root_names_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "--rootless" in machine_checks.root().cure


def test_the_verdict_does_not_rest_on_what_limits_would_have_done() -> None:
    def texts(*events: dict[str, Any]) -> list[str]:
        unknowns = Unknowns()
        for event in events:
            unknowns.add(event)
        return unknowns.texts()

    rootless = {"event": "schedule", "what": ROOTLESS, "detail": "limits"}
    assert any("nothing limits them" in text for text in texts(rootless))
    assert texts({"event": "schedule", "what": "go", "detail": "training"}) == []


def test_a_place_that_somebody_else_has_made_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_runtime_root(tmp_path / "own")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(MachineError, match="belongs to somebody else"):
        make_runtime_root(tmp_path / "own")
    monkeypatch.undo()
    (tmp_path / "link").symlink_to(tmp_path / "own")
    with pytest.raises(MachineError, match="belongs to somebody else"):
        make_runtime_root(tmp_path / "link")


def test_another_user_locks_what_root_locks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    roots, own = tmp_path / "root", tmp_path / "own"
    roots.mkdir()
    monkeypatch.setattr(lock, "runtime_root", lambda uid: roots)
    for name, value in (("RUNTIME_ROOT", own), ("MACHINE_LOCK", own / "machine.lock")):
        monkeypatch.setattr(lock, name, value)
    monkeypatch.setattr(lock, "SHARED_LOCK", own / "shared.lock")
    monkeypatch.setattr(lock, "_is_root", lambda: False)
    with lock.machine_lock(share=False):
        assert sorted(path.name for path in own.iterdir()) == ["machine.lock", "shared.lock"]
    for name in ("machine.lock", "shared.lock"):
        (own / name).unlink()
        (roots / name).touch()
        (roots / name).chmod(0o444)
    with (
        lock.machine_lock(share=False),
        pytest.raises(MachineError, match="another run"),
        lock.machine_lock(share=False),
    ):
        pass
    assert not list(own.iterdir())


def test_the_lock_of_a_run_is_where_its_owner_can_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = RunDir(tmp_path / "20000101T000000Z-lan-ddp-none-00000000")
    run.path.mkdir()
    owner = run.path.stat().st_uid
    assert run.lock == run_directory.RUNTIME_ROOT / f"{run.runtime.name}.lock"
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert run.lock.parent == runtime_root(owner), "seen by another user"
    assert runtime_root(0) == Path("/run/longhaul") and runtime_root(7).name == "longhaul-7"


def said_by(code: str, **more: str) -> str:
    command, given = [sys.executable, "-c", code], {**environment(), **more}
    done = subprocess.run(command, capture_output=True, text=True, env=given, cwd=CLONE, check=True)
    return done.stdout.strip()


def test_root_of_a_namespace_finds_its_owners_files() -> None:
    code = "from testbed.orchestrator.machine.rights import RUNTIME_ROOT, RUNC_STATE; print(RUNTIME_ROOT, RUNC_STATE)"
    assert said_by(code, **{OWNER: "1234"}).split() == [str(runtime_root(1234)), str(runtime_root(1234) / "runc")]


def test_short_slices_leave_niceness_as_it_is() -> None:
    code = (
        "import os; nice = os.nice(1); from testbed.orchestrator.machine import limits as priority;"
        "print(priority.without_real_time(), os.getpriority(0, 0) - nice, os.sched_getscheduler(0), sep=';')"
    )
    name, niceness_gained, policy = said_by(code).split(";")
    assert name in ("slices of 0.1 ms", "normal")
    assert (int(niceness_gained), int(policy)) == (0, os.SCHED_OTHER)
