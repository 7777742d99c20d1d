"""What debian13.sh says where there is no Debian 13 to be had. Its debootstrap and wget here make and fetch nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HIERARCHIES = Path("/sys/fs/cgroup")
OVER, OTHER = "20000101T000000Z-a-b-c-00000000", "20000101T000001Z-a-b-c-00000000"
ANSWERS = {"id": "echo 0", "apt-get": "echo 'Debian http://mirror.invalid/debian'", "sudo": "exit 1"}


def called(tmp_path: Path, **answers: str) -> subprocess.CompletedProcess[str]:
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    for name, text in {**ANSWERS, **answers}.items():
        (stubs / name).write_text(f"#!/bin/sh\n{text}\n")
        (stubs / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{stubs}:{os.environ['PATH']}", "LONGHAUL_DEBIAN13": str(tmp_path / "root")}
    return subprocess.run(
        ["bash", "scripts/debian13.sh"], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"debootstrap": "exit 1", "wget": "exit 4"}, "http://mirror.invalid/debian has no Debian 13, or cannot be"),
        ({"apt-get": "exit 100", "debootstrap": "exit 1", "wget": "exit 4"}, "cannot be reached"),
    ],
)
def test_without_debian_13s_packages_it_is_left_out_in_one_line(
    tmp_path: Path, answers: dict[str, str], said: str
) -> None:
    done = called(tmp_path, **answers)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("debian13: left out: ") and said in line
    assert not (tmp_path / "root").exists()


def test_a_root_that_could_not_be_made_is_an_error_and_none(tmp_path: Path) -> None:
    done = called(tmp_path, wget="exit 0", debootstrap="echo 'E: no space' >&2\nexit 1")
    assert done.returncode == 3 and "E: no space" in done.stderr and "debootstrap failed" in done.stderr
    assert not (tmp_path / "root").exists()


@pytest.fixture
def groups() -> Iterator[list[Path]]:
    """Empty cgroups of a run that is over and of another one, in each hierarchy that is writable."""
    made = list[Path]()
    for folder in {HIERARCHIES, *HIERARCHIES.iterdir()}:
        if (folder / "cgroup.procs").exists() and not folder.is_symlink():
            made += [folder / f"longhaul-{run}-x" for run in (OVER, OTHER)]
    try:
        for group in made:
            group.mkdir()
        yield made
    finally:
        for group in made:
            if group.exists():
                group.rmdir()


@pytest.mark.needs_root
def test_cgroups_of_a_run_that_was_killed_with_its_root_are_removed_by_the_next_call(
    tmp_path: Path, groups: list[Path]
) -> None:
    (tmp_path / "root" / "longhaul" / "runs" / OVER).mkdir(parents=True)
    done = called(tmp_path, git="exit 1")  # the clone cannot be copied: it ends here
    assert done.returncode != 0 and "left behind" not in done.stderr
    assert groups and {group.name for group in groups if group.exists()} == {f"longhaul-{OTHER}-x"}
