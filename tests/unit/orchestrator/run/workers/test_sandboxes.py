"""What a node with a user's script sees of the machine."""

from __future__ import annotations

from pathlib import Path

from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.run.workers.sandboxes import _named


def test_what_arguments_name_is_seen_but_for_what_each_node_has_of_its_own(tmp_path: Path) -> None:
    code, data = tmp_path / "code", tmp_path / "data"
    for path in (tmp_path, code, data):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
    (code / "train.py").touch(mode=0o644)
    (code / "link").symlink_to(data)
    (data / "one.csv").touch()
    words = ["--hosts=/etc/hosts", "--data", str(data), "link/one.csv", "--cpu", "/proc/cpuinfo", "/sys", "/dev/null"]
    asked = ["topo=lan", "workers=2", "workload=script", f"workload.script={code / 'train.py'}"]
    assert set(_named(resolve(asked, words=words).spec)) == {
        *(data, code / "link" / "one.csv", code / "train.py"),
    }
    assert list(_named(resolve(["topo=lan", "workers=2"]).spec)) == []


def test_the_table_of_a_replay_is_seen(tmp_path: Path) -> None:
    table = tmp_path / "mine.json"
    table.write_text("{}")
    words = ["topo=lan", "workers=2", "workload=replay", f"workload.model={table}", "device=paced"]
    assert list(_named(resolve(words).spec)) == [table]
