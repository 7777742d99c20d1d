"""What debian13.sh says where there is no Debian 13 to be had. Its debootstrap and wget here make and fetch nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
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
