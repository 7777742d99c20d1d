"""A machine with the wheel and the packages of the extra `worker` alone: it trains beside rank 0 of a clone, with the
losses of any other, and says why it cannot be rank 0 itself. Neither a network nor root is needed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_MACHINE
from tests.bare_venv import bare_python, clean_environment

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("topo=lan", "workload=digits", "steps=4", "evaluate_every=2", "compressor=topk")
LIMIT_S = 200.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools leaves its own folders where it builds."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("testbed", "compressors", "topologies", "dashboards", "longhaul"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "-w", made, source],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (found,) = made.glob("longhaul_testbed-*.whl")
    return found


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which nothing is but the wheel, the extra and what that needs; these as links,
    since torch alone has hundreds of megabytes."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return bare_python(tmp_path_factory.mktemp("bare"), wheel, extras["worker"])


def free_port() -> int:
    """Of three in a row: two for longhaul, one for torchrun."""
    for first in range(31000 + os.getpid() % 100 * 10, 32700, 3):
        try:
            for port in range(first, first + 3):
                socket.create_server(("", port)).close()
        except OSError:
            continue
        return first
    raise RuntimeError("no three free ports in a row")


def rank(python: Path | str, number: int, port: int, words: Sequence[str], where: Path) -> subprocess.Popen[str]:
    command = [str(python), "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(number)]
    command += ["--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port + 2)]
    command += ["-m", "testbed.worker", "torchrun", "--port", str(port), *words]
    return subprocess.Popen(
        command, cwd=where, env=clean_environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def said_by(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=LIMIT_S)[0]
    finally:
        process.kill()
        process.wait()


def test_nothing_of_the_other_sides_is_there(bare: Path, tmp_path: Path) -> None:
    code = "import importlib.util as u; print([m for m in {} if u.find_spec(m)])"
    others = ["duckdb", "hydra", "matplotlib", "mininet", "netfilterqueue", "optuna", "pyroute2", "scapy", "pytest"]
    command = [str(bare), "-c", code.format(others)]
    done = subprocess.run(command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_module_of_the_worker_and_of_the_compressors_imports(bare: Path, tmp_path: Path) -> None:
    code = """
import importlib, pkgutil, sys, compressors, testbed.core, testbed.worker
for package in (testbed.core, testbed.worker, compressors):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
print(testbed.worker.__file__)
"""
    done = subprocess.run(
        [str(bare), "-c", code],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(bare.parents[1])


def test_it_trains_beside_rank_0_of_a_clone(bare: Path, tmp_path: Path) -> None:
    port, runs = free_port(), tmp_path / "runs"
    first = rank(sys.executable, 0, port, ("--runs", str(runs), *WORDS), ROOT)
    second = rank(bare, 1, port, (), tmp_path)
    said = said_by(first), said_by(second)
    assert (first.returncode, second.returncode) == (EXIT_COMPLETED, EXIT_COMPLETED), said
    (run,) = runs.iterdir()
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["kind"], summary["workers"], summary["steps"]) == ("completed", "measured", 2, 4)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    sums = {event["rank"]: event["parameters_crc32"] for event in events if event["event"] == "done"}
    assert set(sums) == {0, 1} and len(set(sums.values())) == 1


def test_rank_0_says_what_it_lacks(bare: Path, tmp_path: Path) -> None:
    told = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    done = subprocess.run(
        [str(bare), "-m", "testbed.worker", "torchrun", *WORDS],
        cwd=tmp_path,
        env=clean_environment() | told,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == EXIT_MACHINE, done.stderr
    assert "rank 0 makes the spec and keeps the record" in done.stderr
    assert "hydra" in done.stderr and "experiments/conf" in done.stderr and "make setup" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_longhaul_says_that_this_is_the_worker_alone(bare: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(bare), "-m", "testbed", "run", *WORDS],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == EXIT_MACHINE, done.stderr
    (line,) = done.stderr.splitlines()
    assert "hydra" in line and "the worker alone" in line and "make setup" in line
