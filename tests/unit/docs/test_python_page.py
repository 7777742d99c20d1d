"""The code on docs/python.md, executed in a notebook: on recorded runs here, with real runs in tests/slow."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.notebook import code_cells, executed, python_blocks

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "python.md"
NOTEBOOKS = ROOT / "experiments" / "notebooks"
STARTS = "longhaul.sweep("
TRACKER = '''
"""Stands for a tracker that is not installed here: it takes what the page gives it, and nothing else."""
import contextlib

LOGGED = []

class Logged(contextlib.AbstractContextManager):
    def __init__(self):
        self.summary = {}
    def __exit__(self, *error):
        return None
    def log(self, values, *, step):
        LOGGED.append((values, step))

def init(*, project, name, config):
    return Logged()

def start_run(*, run_name):
    return Logged()

def log_params(params):
    assert params["strategy"] in ("ddp", "local_sgd")

def set_tag(key, value):
    assert (key, value) == ("verdict", "valid")

def log_metric(name, value, *, step):
    LOGGED.append((name, value, step))
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six runs of two strategies over three seeds, made of two recorded ones."""
    recorded = ROOT / "tests" / "data" / "oracles" / "runs"
    for number in range(6):
        source = next(recorded.glob(("*-ddp-topk-69dc4d3e", "*-local_sgd-*")[number % 2]))
        path = tmp_path / "runs" / f"{source.name[:-8]}{number:08x}".replace("20261127", f"2026112{number}")
        shutil.copytree(source, path)
        for name, changes in (
            ("summary.json", {"verdict": "valid", "seed": number // 2}),
            ("spec.json", {"seed": number // 2}),
        ):
            file = json.loads((path / name).read_text())
            (path / name).write_text(json.dumps({**file, **changes}))
    for name in ("mlflow", "wandb"):
        (tmp_path / f"{name}.py").write_text(TRACKER)
    return tmp_path


@pytest.mark.tier("all")
@pytest.mark.timeout(300)
def test_all_that_reads_runs_is_executed_on_recorded_ones(folder: Path) -> None:
    cells = [block for block in python_blocks(PAGE) if STARTS not in block]
    assert len(cells) == len(python_blocks(PAGE)) - 1 >= 6
    checks = (
        "import mlflow, wandb\nprint('logged', len(mlflow.LOGGED), len(wandb.LOGGED), len(means), len(by_strategy))"
        "\nwarnings.simplefilter('default')"
    )
    said = executed(["import warnings; warnings.simplefilter('error')", *cells, checks], folder, timeout_s=200)
    assert "local_sgd  powersgd" in said and said.endswith("logged 12 12 2 2\n")
    assert (folder / "bytes.pdf").read_bytes().startswith(b"%PDF-")
    (row,) = (line for line in (folder / "table.tex").read_text().splitlines() if line.startswith("ddp & topk & "))
    assert " & 3 & 3 valid & " in row


def test_a_sweep_becomes_a_figure_and_a_table_in_fifteen_lines() -> None:
    (code,) = (block for block in python_blocks(PAGE) if STARTS in block)
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    assert '"accuracy.pdf"' in code and '"results.tex"' in code


def test_the_notebook_of_a_sweep_is_the_page_s_code_in_cells() -> None:
    (code,) = (block for block in python_blocks(PAGE) if STARTS in block)
    cells = code_cells(NOTEBOOKS / "sweep-to-figure.ipynb")
    assert len(cells) == 3 and "".join(f"{cell}\n" for cell in cells).replace("\n\n", "\n") == code.replace(
        "\n\n", "\n"
    )


@pytest.mark.tier("all")
@pytest.mark.timeout(300)
def test_the_notebook_of_one_run_reads_a_recorded_one(folder: Path) -> None:
    said = executed(
        ["import warnings; warnings.simplefilter('error')", *code_cells(NOTEBOOKS / "one-run.ipynb")], folder, 200
    )
    assert "local_sgd-powersgd" in said and "forward_s" in said and "rate_measured_bit_s" in said
    assert (folder / "one-run.pdf").read_bytes().startswith(b"%PDF-")


@pytest.mark.parametrize("notebook", sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")))
def test_a_notebook_comes_without_outputs(notebook: str) -> None:
    cells = json.loads((NOTEBOOKS / notebook).read_text())["cells"]
    assert cells and all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
