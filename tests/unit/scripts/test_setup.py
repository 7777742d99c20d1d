"""What setup.sh would install, and when it has nothing to do. Its apt-get here is one that has no package."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = (ROOT / "scripts" / "setup.sh").read_text()

pytestmark = pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="not a Debian system")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree that is set up but for packages."""
    tree = tmp_path / "tree"
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, tree / name)
    shutil.copy(ROOT / "pyproject.toml", tree)
    (tree / "testbed").mkdir()
    shutil.copy(ROOT / "testbed" / "__init__.py", tree / "testbed")
    (tree / ".venv").mkdir()
    definitions = SCRIPT.removesuffix('main "$@"\n')
    assert definitions != SCRIPT
    found = subprocess.run(
        ["bash", "-c", f"{definitions}\nfingerprint", "scripts/setup.sh"],
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    (tree / ".venv" / "longhaul-setup").write_text(found.stdout)
    return tree


def setup(tree: Path, *arguments: str, lacking: str = "") -> subprocess.CompletedProcess[str]:
    """
    Args:
        lacking: package that this machine is without, and apt-get too.
    """
    stubs = tree.parent / "stubs"
    stubs.mkdir(exist_ok=True)
    scripts = {
        "dpkg-query": f'shift 2\nfor name; do [ "$name" = \'{lacking}\' ] || echo "$name ii "; done\n',
        "sudo": 'exec "$@"\n',  # its own search path leads to the system's apt-get
        "apt-get": 'echo "E: Unable to locate package $*" >&2\nexit 100\n',
    }
    for name, text in scripts.items():
        (stubs / name).write_text(f"#!/bin/sh\n{text}")
        (stubs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{stubs}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "scripts/setup.sh", *arguments], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("arguments", [(), ("browser",)])
def test_where_nothing_is_missing_it_returns_at_once(tree: Path, arguments: tuple[str, ...]) -> None:
    done = setup(tree, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tree / ".venv.lock").exists()


def test_chromium_is_not_missed_by_who_does_not_ask_for_it(tree: Path) -> None:
    done = setup(tree, lacking="chromium")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("arguments", "lacking"), [(("browser",), "chromium"), ((), "runc")])
def test_what_apt_does_not_have_is_named(tree: Path, arguments: tuple[str, ...], lacking: str) -> None:
    stamp = (tree / ".venv" / "longhaul-setup").read_text()
    done = setup(tree, *arguments, lacking=lacking)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].rstrip().endswith(f"missing: {lacking}")
    assert (tree / ".venv" / "longhaul-setup").read_text() == stamp


def test_another_argument_is_refused(tree: Path) -> None:
    assert setup(tree, "chrome").returncode == 2


def test_what_must_pass_before_a_merge_asks_for_chromium() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    calls = [line.split("||")[0].strip() for line in lines if line.startswith("make ")]
    assert calls[0] == "make setup-browser", "before the tests that need it"
    assert "setup.sh browser" in (ROOT / "Makefile").read_text()
