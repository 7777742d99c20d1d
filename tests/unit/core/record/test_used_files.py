"""Digests of the files that a run used, and what is known of those that cannot be told."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from testbed.core.record import used_files
from testbed.core.record.used_files import CLONE, entries, entry, is_same_now, merged, outside, version


def test_a_file_is_the_same_until_its_content_changes(tmp_path: Path) -> None:
    path = tmp_path / "helper.py"
    path.write_text("A = 1\n")
    was = entry(str(path))
    assert was is not None and is_same_now(was)
    path.touch()
    assert is_same_now(was), "its content is the same"
    path.write_text("A = 2\n")
    assert not is_same_now(was), "of the same size, within a tick of the clock"
    path.write_text("A = 1\n")
    assert is_same_now(was), "as it was"
    path.unlink()
    assert not is_same_now(was)


def test_what_changed_while_the_run_went_on_is_known_never_again(tmp_path: Path) -> None:
    path = tmp_path / "helper.py"
    path.write_text("A = 1\n")
    found = entry(str(path), since_unix_s=time.time() - 60)
    assert found is not None and (found["sha256"], found["size_bytes"]) == (None, None) and not is_same_now(found)
    (tmp_path / "old.py").write_text("A = 1\n")
    os.utime(tmp_path / "old.py", (1e9, 1e9))
    kept = entry(str(tmp_path / "old.py"), since_unix_s=time.time() - 60)
    assert kept is not None and kept["size_bytes"] is None, "another file was moved to its place"


def test_a_large_file_is_known_by_its_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(used_files, "MAX_BYTES", 10)
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(11))
    was = entry(str(path))
    assert was is not None and was["sha256"] is None and was["size_bytes"] == 11 and is_same_now(was)
    os.utime(path, (1e9, 1e9))
    assert not is_same_now(was)


def test_a_link_that_leads_elsewhere_is_a_change(tmp_path: Path) -> None:
    for name in "12":
        (tmp_path / f"v{name}.py").write_text(f"A = {name}\n")
    link = tmp_path / "helper.py"
    link.symlink_to("v1.py")
    (was,) = entries(outside([str(link)]))
    link.unlink()
    link.symlink_to("v2.py")
    assert not is_same_now(was)


def test_a_module_in_an_archive_counts_as_the_archive(tmp_path: Path) -> None:
    for name in ("lib.zip", "lib.egg"):
        (tmp_path / name).write_bytes(b"PK")
        (was,) = entries(outside([str(tmp_path / name / "helper.py"), str(tmp_path / name / "deep" / "other.py")]))
        assert was["path"] == str(tmp_path / name) and is_same_now(was)
        (tmp_path / name).write_bytes(b"PL")
        assert not is_same_now(was)


def test_only_regular_files_are_read_and_there_is_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    assert entries([str(tmp_path / "pipe"), str(tmp_path / "link"), "/no/such", "/dev/zero"]) == []
    monkeypatch.setattr(used_files, "MAX_FILES", 1)
    for name in "abc":
        (tmp_path / name).write_text(name)
    found = {one["path"]: one for one in entries(str(tmp_path / name) for name in "abc")}
    assert set(found) == {str(tmp_path / "a"), "2 more"} and not is_same_now(found["2 more"])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with files, a pipe, and links to a file within and to one outside."""
    (tmp_path / "outside.txt").write_text("1")
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.txt", "deep/b.txt"):
        (folder / name).write_text(name)
    (folder / "inner").symlink_to("a.txt")
    (folder / "outer").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    return folder


def test_a_folder_is_the_same_until_a_name_or_a_content_in_it_changes(data: Path, tmp_path: Path) -> None:
    was = entry(f"{data}/")
    assert was is not None and (was["path"], was["size_bytes"]) == (f"{data}/", len("a.txtdeep/b.txt"))
    assert is_same_now(was) and entry(str(data)) == was
    (data / "a.txt").touch()
    (tmp_path / "outside.txt").write_text("2")
    assert is_same_now(was), "no link is followed out"
    for change, back in (
        (
            lambda: (data / "deep" / "b.txt").write_text("deep/c.txt"),
            lambda: (data / "deep/b.txt").write_text("deep/b.txt"),
        ),
        (lambda: (data / "new").touch(), lambda: (data / "new").unlink()),
        (lambda: (data / "a.txt").rename(data / "c.txt"), lambda: (data / "c.txt").rename(data / "a.txt")),
        (lambda: (data / "outer").unlink(), lambda: (data / "outer").symlink_to(tmp_path)),
    ):
        change()
        assert not is_same_now(was)
        back()
        assert is_same_now(was)


def test_what_a_folder_holds_beyond_the_bounds_counts_by_size_and_time(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(used_files, "MAX_BYTES", 5)
    was = entry(str(data))
    assert was is not None and was["sha256"] and is_same_now(was)
    os.utime(data / "a.txt", (1e9, 1e9))
    assert is_same_now(was), "its content is known"
    os.utime(data / "deep" / "b.txt", (1e9, 1e9))
    assert not is_same_now(was)
    monkeypatch.setattr(used_files, "MAX_FOLDER_FILES", 4)
    was = entry(str(data))
    assert was is not None and was["sha256"] is None and is_same_now(was)
    (data / "a.txt").unlink()
    assert not is_same_now(was)


def test_two_that_disagree_make_unknown_what_was_used(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    (found,) = entries([str(tmp_path / "a.py")])
    assert merged([[found], [found]]) == [found]
    (both,) = merged([[found], [found | {"sha256": "0" * 64}]])
    assert not is_same_now(both)


def test_a_version_is_of_names_and_contents_wherever_the_files_lie(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "helper.py").write_text("A = 1\n")
    one, two = (version(entries([str(tmp_path / folder / "helper.py")])) for folder in ("one", "two"))
    assert one == two is not None and version([]) is None
    (tmp_path / "two" / "helper.py").write_text("A = 2\n")
    assert version(entries([str(tmp_path / "two" / "helper.py")])) != one


def test_modules_of_the_user_are_those_outside_of_the_code_and_of_what_is_installed(tmp_path: Path) -> None:
    own, in_clone = tmp_path / "own.py", CLONE / "experiments" / "scripts" / "plain_ddp.py"
    assert outside(
        [
            *(os.__file__, pytest.__file__, str(CLONE / "testbed/core/units.py"), str(CLONE / "compressors/topk.py")),
            *("_invented.py", str(own), str(in_clone)),
        ]
    ) == sorted([str(own.resolve()), str(in_clone)])
    assert entry(str(in_clone)) is not None
