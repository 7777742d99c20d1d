"""The disk of a node for a user's script, mounted as a run does."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.orchestrator.emulation.containers.node_disk import _swapped
from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[5]
CODE = """
import os, sys
from pathlib import Path
from testbed.orchestrator.emulation.containers import node_disk
node_disk.DISK_BYTES = 1 << 22
place, script = Path(sys.argv[1]), Path(sys.argv[2])
disk = node_disk.NodeDisk("a", place, script, (65534, 65534), rootless=False)
assert not disk.notes, disk.notes
if os.fork() == 0:
    os.setgroups([]), os.setresgid(65534, 65534, 65534), os.setresuid(65534, 65534, 65534)
    os.chdir(disk.working_directory)
    for name in ("old", "new"):
        os.makedirs(name, exist_ok=True)
        Path(name, "1.pt").write_text("theirs")
    with open("log.txt", "a") as log:
        log.write("more")
    os.remove("gone.txt")
    os.rename("old", "older")
    os.rename("moved", "there")
    assert sorted(os.listdir()) == ["log.txt", "new", "older", "there"], os.listdir()
    Path(disk.out, "result").write_text("1")
    try:
        Path(disk.out, "big").write_bytes(bytes(1 << 22))
    except OSError as error:
        os._exit(error.errno)
    os._exit(99)
_, status = os.wait()
os.remove(disk.out / "big")
disk.keep(Path(sys.argv[3]))
os._exit(os.waitstatus_to_exitcode(status))
"""


@pytest.fixture
def opened() -> Iterator[Path]:
    """Not below pytest's own directory, which is closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.needs_root
@pytest.mark.parametrize("name", ["plain", "with, comma:and \\ more"])
def test_a_script_writes_where_its_owner_could_and_nothing_of_the_owner_changes(name: str, opened: Path) -> None:
    script, place, kept = opened / name, opened / "place", opened / "kept"
    (script / "old").mkdir(parents=True)
    (script / "moved" / "inner").mkdir(parents=True)
    place.mkdir()
    for file, text in (
        ("old/1.pt", "mine"),
        ("log.txt", "some "),
        ("gone.txt", "kept"),
        ("moved/inner/a", "as it was"),
    ):
        (script / file).write_text(text)
    before = {path: path.read_text() for path in script.rglob("*") if path.is_file()}
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-B", "-c", CODE, str(place), str(script), str(kept)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (28, "")  # no space left on device
    assert {path: path.read_text() for path in script.rglob("*") if path.is_file()} == before
    found = {str(path.relative_to(kept)): path.read_text() for path in kept.rglob("*") if path.is_file()}
    assert found == {
        "result": "1",
        "working_directory/log.txt": "some more",
        "working_directory/new/1.pt": "theirs",
        "working_directory/older/1.pt": "theirs",
        "working_directory/there/inner/a": "as it was",
    }


@pytest.mark.parametrize(("one", "other"), [(0, 65534), (1000, 65534), (65534, 1000), (65534, 65535), (7, 7)])
def test_a_map_swaps_two_ids_and_leaves_all_others(one: int, other: int) -> None:
    ranges = [tuple(map(int, line.split())) for line in _swapped(one, other).splitlines()]

    def shown(number: int) -> list[int]:
        return [outside + number - inside for inside, outside, count in ranges if inside <= number < inside + count]

    assert shown(one) == [other] and shown(other) == [one]
    assert all(shown(number) == [number] for number in {1, 999, 1001, 65533, 65536, 2**31} - {one, other})
