"""`make wheels-check`: each wheel by pip in an empty environment of another Python, and its tests there.

wheels_check.py PYTHON...: interpreters, such as python3.13; /usr/bin/python3 without. pip fetches torch and the rest,
as a user's would; where an index has no CPU build for a Python, that is several GB each. Prints a table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts import make_wheel  # noqa: E402

PLACE = ROOT / "build" / "wheels-check"
LIMIT_S = 3600.0
INI = """[pytest]
addopts = --import-mode=importlib --strict-markers -ra
pythonpath = .
markers =
    tier(name): which of make's targets runs it in a clone
timeout = 300
filterwarnings = error
"""
CONFTEST = '''"""Settings and tiers that tests/conftest.py gives these tests in a clone."""

import os

import hypothesis

os.environ.setdefault("OMP_NUM_THREADS", "1")
profile = {"deadline": None, "derandomize": True, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("shared", **profile)
hypothesis.settings.load_profile("shared")


def pytest_collection_modifyitems(config, items):
    marks = {item: item.get_closest_marker("tier") for item in items}
    later = [item for item, mark in marks.items() if mark is not None and mark.args[0] not in TIERS]
    items[:] = [item for item in items if item not in later]
    config.hook.pytest_deselected(items=later)
'''


@dataclass(frozen=True)
class Stage:
    """Declaration of some tests that are run at once."""

    globs: tuple[str, ...]
    beside: tuple[str, ...] = ()
    """Files and folders of the clone that the tests need and the wheel has not: put next to it before they run."""
    data: tuple[str, ...] = ()
    """Files and folders that they read, at the same place."""
    aside: frozenset[str] = frozenset()
    """Files among the globs that try other parts than the wheel's."""
    tiers: tuple[str, ...] = ("test",)
    """Tiers of tests that are run; others take longer in a clone too."""
    skips: int = 0
    """Number of tests that have nothing to try for one of their parameters, in a clone too."""


@dataclass(frozen=True)
class Check:
    """Declaration of what is done with one wheel."""

    wheel: str
    extras: str
    stages: tuple[Stage, ...]
    packages: tuple[str, ...]


LAWS = Stage(
    ("tests/contract/test_*.py", "tests/unit/compressors/base/test_*.py"),
    ("testbed/worker/laws", "testbed/worker/plugins/compressor_catalogue.py", "experiments/conf/compressor"),
    ("tests/contract/conftest.py",),
    # of strategies, workloads and the command line; of the tree's pages and what they show; of fuzzing
    frozenset(
        f"test_{name}.py" for name in ("every_plugin", "old_specs", "readers", "throughput", "corpus", "example")
    ),
    skips=1,
)
HOOK = Stage(
    (
        "tests/unit/worker/script/test_ddp_hook.py",
        "tests/unit/compressors/test_ddp_script.py",
    ),
    tiers=("test", "slow"),
)
API = Stage(
    ("tests/unit/longhaul/test_api.py", "tests/unit/longhaul/test_examples.py"), data=("tests/data/oracles/runs",)
)
PYTEST = ("pytest>=9", "pytest-timeout", "hypothesis")
CHECKS = (
    Check("longhaul-compressors", "sz3,zfp,blosc2,zstd", (HOOK, LAWS), (*PYTEST, "PyYAML")),
    Check("longhaul", "figures", (API,), PYTEST),
)


@dataclass(frozen=True)
class Result:
    """Outcome of one wheel under one Python."""

    wheel: str
    python: str
    has: str
    """Packages that pip chose, with their versions."""
    install_s: float
    tests_s: float
    said: str
    """pytest's closing lines, or why there are none."""
    passed: bool


def main(arguments: Sequence[str]) -> int:
    """Check all wheels under each Python that they are for; return 1 if anything fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pythons", nargs="*", default=["/usr/bin/python3"])
    parser.add_argument("--wheel", choices=[check.wheel for check in CHECKS], help="this one alone")
    parser.add_argument("--keep", action="store_true", help="keep environments; another call puts the wheel there anew")
    given = parser.parse_args(arguments)
    results = []
    for python in given.pythons:
        version = version_of(python)
        for check in CHECKS:
            if given.wheel in (None, check.wheel) and is_for(check.wheel, version):
                results.append(checked(check, python, version, keep=given.keep))
                print(row(results[-1]), flush=True)
    print("\n| wheel | Python | packages | install | tests | |\n| --- | --- | --- | --- | --- | --- |")
    print("\n".join(row(result) for result in results) or "no wheel is for these Pythons")
    return 0 if results and all(result.passed for result in results) else 1


def row(result: Result) -> str:
    """Return a line of the table."""
    return (
        f"| {result.wheel} | {result.python} | {result.has} | {result.install_s:.0f} s | {result.tests_s:.0f} s"
        f" | {'ok' if result.passed else 'FAILED'}: {result.said} |"
    )


def version_of(python: str) -> str:
    """Return an interpreter's version, such as 3.13.0."""
    command = [python, "-c", "import platform; print(platform.python_version())"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def is_for(wheel: str, version: str) -> bool:
    """Return True if a wheel says that it supports a Python."""
    text = (ROOT / make_wheel.of(wheel).project / "pyproject.toml").read_text()
    found = re.search(r'^requires-python = ">=(\d+)\.(\d+)"$', text, re.MULTILINE)
    assert found is not None, f"{wheel} has no least Python"
    return tuple(map(int, version.split(".")[:2])) >= (int(found[1]), int(found[2]))


def checked(check: Check, python: str, version: str, *, keep: bool = False) -> Result:
    """Install a wheel in an empty environment, run its tests there, and remove both unless they are to be kept."""
    place = PLACE / f"{check.wheel}-{version}"
    if not keep:
        shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True, exist_ok=True)
    try:
        begun_s = time.monotonic()
        failed = installed(check, python, place)
        install_s, begun_s = time.monotonic() - begun_s, time.monotonic()
        if failed is not None:
            return Result(check.wheel, version, "-", install_s, 0.0, failed, False)
        said, passed = tested(check, place)
        return Result(check.wheel, version, packages(place), install_s, time.monotonic() - begun_s, said, passed)
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def installed(check: Check, python: str, place: Path) -> str | None:
    """Make the environment; return what pip says where it fails."""
    for old in place.glob("*.whl"):
        old.unlink()
    if make_wheel.main([check.wheel, str(place)]) != 0:
        return "the wheel is not built"
    (wheel,) = place.glob("*.whl")
    if not of_venv(place).exists():
        subprocess.run([python, "-m", "venv", place / "venv"], env=environment(), check=True)
    command = [of_venv(place), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-input"]
    for wanted in ([f"{wheel}[{check.extras}]", *check.packages], ["--no-deps", "--force-reinstall", wheel]):
        done = subprocess.run([*command, *wanted], env=environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return (lines or ["pip failed"])[-1]
    return None


def tested(check: Check, place: Path) -> tuple[str, bool]:
    """Run the tests of each stage; return pytest's last lines and whether all of them passed."""
    said, passed = [], True
    for number, stage in enumerate(check.stages):
        folder = place / f"tests-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        laid_out(stage, folder, site_packages(place) if stage.beside else None)
        done = subprocess.run(
            [of_venv(place), "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode != 0:
            print(done.stdout[-20_000:], done.stderr[-5_000:], file=sys.stderr)
        said.append((done.stdout.strip().splitlines() or ["no output"])[-1].strip("= "))
        passed = passed and done.returncode == 0 and " passed" in said[-1] and skipped(said[-1]) == stage.skips
    return "; ".join(said), passed


def skipped(line: str) -> int:
    """Return how many tests were skipped by pytest's closing line."""
    found = re.search(r"(\d+) skipped", line)
    return int(found[1]) if found else 0


def laid_out(stage: Stage, folder: Path, site: Path | None) -> None:
    """Copy tests, the helpers that they import, and data to `folder`; what they need beside the wheel to `site`."""
    folder.mkdir(parents=True)
    (folder / "pytest.ini").write_text(INI)
    (folder / "conftest.py").write_text(f"{CONFTEST}\n\nTIERS = {stage.tiers!r}\n")
    for path in tests_of(stage):
        _copy(path, folder)
    for name in stage.data:
        _copy(ROOT / name, folder)
    if site is not None:
        for name in stage.beside:
            _copy(ROOT / name, site)


def tests_of(stage: Stage) -> list[Path]:
    """Return the files of a stage's tests, and of what they import of tests/."""
    todo = [path for glob in stage.globs for path in ROOT.glob(glob) if path.name not in stage.aside]
    assert todo, stage.globs
    found: set[Path] = set()
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += make_wheel.imported(path, ("tests",))
    return sorted(found)


def _copy(path: Path, folder: Path) -> None:
    to = folder / path.relative_to(ROOT)
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, to, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    else:
        shutil.copy(path, to)


def site_packages(place: Path) -> Path:
    """Return where the environment has its packages."""
    (found,) = (place / "venv").glob("lib/python3*/site-packages")
    return found


def packages(place: Path) -> str:
    """Return what pip chose of what a version may decide."""
    command = [of_venv(place), "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]
    listed = json.loads(subprocess.run(command, env=environment(), check=True, capture_output=True).stdout)
    return ", ".join(_named(listed))


def _named(listed: Sequence[dict[str, str]]) -> Iterator[str]:
    for one in listed:
        if one["name"] in ("numpy", "pandas", "torch"):
            yield f"{one['name']} {one['version']}"


def of_venv(place: Path) -> Path:
    """Return the environment's Python."""
    return place / "venv" / "bin" / "python"


def environment() -> dict[str, str]:
    """Return this process's environment without a way to this tree."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
