"""The key `memory_limit`: what it comes to for each node, every fault, and how a node is told that had too little."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.emulation.containers import runc_container
from testbed.orchestrator.emulation.containers.runc_container import Container
from testbed.orchestrator.emulation.containers.sandbox import Sandbox
from testbed.orchestrator.run.workers import workers as workers_module
from tests.unit.orchestrator.launched import Launched

STAR = ("topo=star", "topo.regions=[a,b]", "workers=4")
KILLED = "was killed for memory (the limit is 64 MB, see memory_limit)"


def limits(text: str) -> dict[str, int]:
    return resolve([*STAR, f"memory_limit={text}"]).spec.memory_limit


def test_one_size_is_every_nodes() -> None:
    assert limits("512 MB") == dict.fromkeys(("a-0", "a-1", "b-0", "b-1"), 512_000_000)
    assert resolve(STAR).spec.memory_limit == {}


def test_a_node_goes_before_its_region_and_that_before_the_others() -> None:
    assert limits("{others: 1 GB, a: 256 MiB, a-0: null}") == {"a-1": 2**28, "b-0": 10**9, "b-1": 10**9}
    assert limits("{b-1: 64 MB}") == {"b-1": 64_000_000}, "whoever is not named has the machine's share"


def test_all_faults_come_at_once() -> None:
    with pytest.raises(InputError) as refused:
        limits("{a: 512, c: 1 GB, b: 1 MB}")
    assert {fault.split(":")[1].strip() for fault in refused.value.faults} == {"a", "c", "b-0", "b-1"}
    with pytest.raises(InputError, match="memory_limit=True: must be a size"):
        limits("true")


def test_a_limit_changes_the_hash_and_specs_without_one_have_theirs() -> None:
    limited, free = resolve([*STAR, "memory_limit=512 MB"]).spec, resolve(STAR).spec
    assert limited.hash != free.hash
    assert RunSpec.from_json(limited.to_json()) == limited
    older = free.to_json()
    del older["memory_limit"]
    assert RunSpec.from_json(older).hash == free.hash


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Container:
    """Of node `a`, with an empty cgroup of version 2."""
    monkeypatch.setattr(runc_container, "CGROUP_ROOT", tmp_path)
    nothing: Any = None
    sandbox = Sandbox("r", tmp_path, tmp_path, tmp_path, tmp_path, 10**9, limits={"a": 64_000_000})
    (tmp_path / "longhaul-r-a").mkdir()
    return Container(sandbox, nothing, "a", "net", tmp_path / "log")


def test_a_container_has_its_nodes_limit_and_others_the_share(box: Container) -> None:
    assert box.memory_bytes == 64_000_000
    assert Container(box.sandbox, box.root, "b", "net", box.log).memory_bytes == 10**9


@pytest.mark.parametrize("version", [1, 2])
def test_a_kill_for_memory_is_told_as_one(box: Container, tmp_path: Path, version: int) -> None:
    if version == 2:
        counts = tmp_path / box.name / "memory.events"
    else:
        counts = tmp_path / "memory" / box.name / "memory.oom_control"
        counts.parent.mkdir(parents=True)
    before = "low 0\noom 1\noom_kill 0\n" if version == 2 else "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"
    counts.write_text(before)
    assert box.ended(-signal.SIGKILL) == "was ended by SIGKILL"
    counts.write_text(before.replace("oom_kill 0", "oom_kill 2"))
    assert box.ended(-signal.SIGKILL) == KILLED
    assert box.ended(1) == "ended with status 1", "some other process of the node was killed"


def test_the_record_says_so_where_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "_POLL_S", 0.001)
    workers = Launched(tmp_path)
    workers.fakes[2].kill()
    workers.fakes[2].how = KILLED
    assert workers.hear() == [(2, f"{KILLED} before it was done; its last words: its last line")]


def test_what_runc_is_told_has_the_limit(box: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sandbox, "user", lambda _: (1, 1))

    class Root:
        path = Path("/nowhere")

    root: Any = Root()
    config = Container(box.sandbox, root, "a", "net", box.log)._config(["true"], {}, Path("/"))
    assert json.loads(json.dumps(config))["linux"]["resources"]["memory"] == {"limit": 64_000_000}
