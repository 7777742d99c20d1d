"""The import contracts hold, and a planted violation of each breaks the check that guards it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT_IMPORTS = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    # In isolated mode (-I) sys.path has no entry of the caller's, so that the copy is linted and not this tree.
    code = f"import sys; sys.path.insert(0, {str(tree)!r}); {LINT_IMPORTS}"
    command = [sys.executable, "-I", "-c", code, "--no-cache"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def ruff(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the code, to be broken."""
    for name in ("testbed", "compressors", "dashboards", "topologies", "longhaul"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(file: Path, line: str) -> None:
    file.write_text(f"{file.read_text()}\n{line}\n" if file.exists() else f"{line}\n")


def test_the_import_contracts_hold(tree: Path) -> None:
    done = lint_imports(tree)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("testbed/core/units.py", "import numpy", "both sides: the core"),
        ("testbed/orchestrator/cli/main.py", "import torch", "outside the nodes: never torch"),
        (
            "testbed/orchestrator/run/__main__.py",
            "import compressors.base.compressor",
            "outside the nodes: never torch",
        ),
        (
            "testbed/orchestrator/run/__main__.py",
            "import testbed.analysis.record.record",
            "outside the nodes: never torch",
        ),
        ("topologies/lan.py", "import mininet.net", "topologies are data"),
        ("compressors/topk.py", "import mininet.net", "inside a node: never Mininet"),
        (
            "compressors/topk.py",
            "import testbed.worker.communication.communicator",
            "a compressor never knows the worker",
        ),
        ("testbed/worker/training/loop.py", "import testbed.orchestrator.cli.main", "inside a node: never Mininet"),
        (
            "testbed/analysis/record/record.py",
            "import testbed.worker.communication.communicator",
            "afterwards: reads records",
        ),
        ("testbed/analysis/record/record.py", "import dashboards.generate", "afterwards: reads records"),
        ("compressors/topk.py", "import compressors.fp16", "one compressor never leans on another"),
        (
            "testbed/worker/strategies/ddp.py",
            "import testbed.worker.strategies.torch_ddp",
            "one strategy, ",
        ),
        ("testbed/worker/strategies/ddp.py", "import testbed.worker.workloads.replay", "one strategy, "),
    ],
)
def test_a_planted_import_breaks_its_contract(tree: Path, file: str, line: str, contract: str) -> None:
    assert (tree / file).exists(), f"{file} has gone; plant the line in another file of its side"
    plant(tree / file, line)
    done = lint_imports(tree)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [text for text in done.stdout.splitlines() if " BROKEN" in text]
    assert any(text.startswith(contract) for text in broken), broken


UPWARDS = {
    "core: folders": ("testbed/core/device/device.py", "testbed.core.costs.fusion"),
    "orchestrator: folders": ("testbed/orchestrator/emulation/kernel/tc.py", "testbed.orchestrator.config.config"),
    "emulation: folders": (
        "testbed/orchestrator/emulation/shapers/delay.py",
        "testbed.orchestrator.emulation.links.network",
    ),
    "config: reads": (
        "testbed/orchestrator/config/grammar/overrides.py",
        "testbed.orchestrator.config.events.compiler",
    ),
    "search: folders": ("testbed/orchestrator/search/sweep/grid.py", "testbed.orchestrator.search.tune.trials"),
    "worker: folders": ("testbed/worker/model/pieces.py", "testbed.worker.reduction.buckets"),
    "methods: folders": ("testbed/worker/methods/pipeline/autopipe.py", "testbed.worker.methods.planner.model_profile"),
    "methods: the planner": ("testbed/worker/methods/kfac/curvature.py", "testbed.worker.training.loop"),
    "analysis: folders": ("testbed/analysis/style/swatch.py", "testbed.analysis.comparison.groups"),
}
"""Per contract of folders, by the beginning of its name, an import from a lower folder of a higher one."""


def test_an_import_upwards_breaks_the_contract_of_its_folders(tree: Path) -> None:
    for file, module in UPWARDS.values():
        assert (tree / file).exists(), f"{file} has gone; plant the line in another file of its folder"
        assert (tree / f"{module.replace('.', '/')}.py").exists(), f"{module} has gone; name another one of its folder"
        plant(tree / file, f"def late():\n    import {module}")
    broken = [text for text in lint_imports(tree).stdout.splitlines() if " BROKEN" in text]
    for name in UPWARDS:
        assert any(text.startswith(name) for text in broken), f"{name}: {broken}"


def test_a_folder_that_no_contract_places_breaks_it(tree: Path) -> None:
    (tree / "testbed" / "worker" / "extra").mkdir()
    plant(tree / "testbed" / "worker" / "extra" / "__init__.py", "")
    done = lint_imports(tree)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "testbed.worker.extra" in done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import torch.distributed",
        "import torch.distributed as dist",
        "from torch import distributed",
        "from torch.distributed import all_reduce",
    ],
)
@pytest.mark.parametrize("folder", ["testbed/worker", "testbed/worker/strategies", "compressors"])
def test_torch_distributed_is_banned_outside_comm(tree: Path, folder: str, code: str) -> None:
    plant(tree / folder / "planted.py", f"{code}\n\nprint(1)")
    assert f"{folder}/planted.py:1:" in (found := ruff(tree).stdout)
    assert any("TID251" in line for line in found.splitlines() if "planted.py:1:" in line), found


def test_comm_and_the_reference_may_use_torch_distributed(tree: Path) -> None:
    assert "TID251" not in ruff(tree).stdout
