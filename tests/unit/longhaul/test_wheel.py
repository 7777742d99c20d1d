"""The wheel `longhaul` holds what reading needs and nothing more, and the API's tests pass with it alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import testbed
from tests.bare_venv import bare_python, clean_environment
from tests.wheels import files_of

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "longhaul" / "pyproject.toml").read_text())["project"]
LIMIT_S = 200.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, ROOT / "scripts" / "make_wheel.py", "longhaul", folder]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
    (found,) = folder.glob("*.whl")
    return found


def test_what_it_needs_is_readers_alone() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in files_of("longhaul")}
    sides = ("testbed/orchestrator", "testbed/worker", "compressors", "topologies", "dashboards", "experiments")
    assert not [name for name in names if name.startswith(sides)]
    assert {"longhaul/__init__.py", "testbed/core/record/run_row.py", "testbed/analysis/figures/plot.py"} <= names


def test_its_dependencies_are_few_and_loose() -> None:
    pins = [*PROJECT["dependencies"], *(pin for extra in PROJECT["optional-dependencies"].values() for pin in extra)]
    assert len(PROJECT["dependencies"]) <= 2 and all(">=" in pin and "==" not in pin for pin in pins)


@pytest.mark.tier("all")
def test_it_is_called_longhaul_and_is_of_this_version(wheel: Path) -> None:
    assert wheel.name == f"longhaul-{testbed.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert "testbed/analysis/figures/figures.js" in names and len(names) < 100


@pytest.mark.tier("all")
def test_the_tests_of_the_api_pass_with_it_alone(wheel: Path, tmp_path: Path) -> None:
    requirements = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["figures"], "pytest"]
    python = bare_python(tmp_path / "venv", wheel, requirements)
    tests = tmp_path / "tests" / "unit" / "longhaul"
    tests.mkdir(parents=True)
    for name in ("test_api.py", "test_examples.py"):
        shutil.copy(Path(__file__).parent / name, tests)
    shutil.copytree(ROOT / "tests" / "data" / "oracles" / "runs", tmp_path / "tests" / "data" / "oracles" / "runs")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\naddopts = --import-mode=importlib\n")
    done = subprocess.run(
        [python, "-P", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", tests],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "skipped" not in done.stdout


@pytest.mark.tier("all")
def test_without_the_packages_of_figures_all_but_figures_works(wheel: Path, tmp_path: Path) -> None:
    python = bare_python(tmp_path / "venv", wheel, PROJECT["dependencies"])
    runs = ROOT / "tests" / "data" / "oracles" / "runs"
    code = (
        f"import longhaul, sys\nruns = longhaul.runs({str(runs)!r})\n"
        "print(longhaul.table(runs, format='csv', allow_invalid=True).count('ddp'))\n"
        "assert 'torch' not in sys.modules\nlonghaul.plot(runs)"
    )
    done = subprocess.run(
        [python, "-P", "-c", code],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.stdout.strip() != "" and "is not installed: pip install 'longhaul[figures]'" in done.stderr, done.stderr
