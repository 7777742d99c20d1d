"""The wheel `longhaul-compressors` holds what a training script needs and nothing more, and trains with torch alone."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import testbed
from tests.bare_venv import bare_python, clean_environment
from tests.unit.compressors.ddp_script import assert_trained, trained
from tests.wheels import files_of, staged

NAME = "longhaul-compressors"
ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "compressors" / "pyproject.toml").read_text())["project"]
LIMIT_S = 200.0
OLDEST = (3, 10)

IMPORTS = """
import importlib.abc, json, pkgutil, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in set(sys.stdlib_module_names) | {"torch", "numpy"} | THEIRS or name in OURS:
            return None
        raise ImportError(f"{name} is not in the wheel")

FOLDER, THEIRS, OURS = json.loads(sys.argv[1])
THEIRS, OURS = set(THEIRS), set(OURS)
import torch, numpy
sys.path[:] = [FOLDER, *(place for place in sys.path if place)]
sys.meta_path.insert(0, Blocker())
for name in sorted(OURS):
    if not name.endswith("codec_child"):
        importlib.import_module(name)
from testbed.worker import ddp_hook
hooks = [ddp_hook(name) for name in ("topk", "adaptive", "int8_zstd", "powersgd")]
try:
    ddp_hook("topkk")
except Exception as error:
    print(error)
print(sys.modules["compressors"].__file__)
"""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_it_holds_compressors_and_the_hook_and_no_other_side() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in files_of(NAME)}
    sides = ("testbed/orchestrator", "testbed/analysis", "topologies", "dashboards", "experiments", "longhaul")
    aside = ("strategies", "workloads", "transforms", "methods", "training", "laws", "data", "process")
    worker = tuple(f"testbed/worker/{folder}/" for folder in aside)
    assert not [name for name in names if name.startswith((*sides, *worker))]
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "compressors").rglob("*.py")} < names
    assert "testbed/worker/script/ddp_hook.py" in names


def test_its_requirements_are_ranges_of_torch_and_numpy() -> None:
    assert [pin.partition(">=")[0] for pin in PROJECT["dependencies"]] == ["numpy", "torch"]
    assert set(PROJECT["optional-dependencies"]) == {"sz3", "zfp", "blosc2", "zstd"}
    pins = [*PROJECT["dependencies"], *(pin for extra in PROJECT["optional-dependencies"].values() for pin in extra)]
    assert all(">=" in pin and "==" not in pin for pin in pins)
    assert PROJECT["requires-python"] == ">=" + ".".join(map(str, OLDEST))


def test_it_imports_where_nothing_else_of_ours_is(tmp_path: Path) -> None:
    folder = staged(NAME, tmp_path)
    for path in folder.rglob("*.py"):
        ast.parse(path.read_text(), feature_version=OLDEST)
    # what torch imports of others, where they are installed
    theirs = [
        "typing_extensions",
        "sympy",
        "mpmath",
        "networkx",
        "optree",
        "yaml",
        "pydantic",
        "pkg_resources",
        "_distutils_hack",
    ]
    told = json.dumps([str(folder), theirs, [module_of(path) for path in files_of(NAME)]])
    done = subprocess.run(
        [sys.executable, "-P", "-B", "-c", IMPORTS, told],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "compressor=topkk: unknown; known: acpsgd, " in done.stdout
    assert done.stdout.splitlines()[-1] == str(folder / "compressors" / "__init__.py")


@pytest.mark.tier("all")
def test_the_oldest_python_has_all_that_it_takes_from_the_standard_library(tmp_path: Path) -> None:
    folder = staged(NAME, tmp_path)
    command = [sys.executable, "-m", "mypy", "--python-version", ".".join(map(str, OLDEST)), "--follow-imports=skip"]
    command += [
        "--ignore-missing-imports",
        "--cache-dir",
        str(tmp_path / ".cache"),
        "-p",
        "testbed",
        "-p",
        "compressors",
    ]
    done = subprocess.run(
        command, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert "checked" in done.stdout, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if 'error: Module "' in line or "syntax" in line] == []


@pytest.mark.tier("slow")
def test_a_plain_ddp_script_trains_with_it_in_an_empty_environment(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "scripts" / "make_wheel.py", NAME, tmp_path]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"longhaul_compressors-{testbed.__version__}-py3-none-any.whl"
    assert len(zipfile.ZipFile(wheel).namelist()) < 200
    python = bare_python(tmp_path / "venv", wheel, PROJECT["dependencies"])
    assert_trained(trained(python, tmp_path, ["none", "topk"]), {"none": 1.0, "topk": 0.2})
    with pytest.raises(AssertionError, match=r"its library cannot be loaded.*pysz"):
        trained(python, tmp_path, ["sz3"])
