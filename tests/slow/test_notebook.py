"""The notebooks, one after the other: a sweep over three configurations and three seeds, then one run of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.record.summary import VERDICTS
from tests.notebook import code_cells, executed

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "experiments" / "notebooks"
LIMIT_S = 1500


@pytest.mark.needs_root
@pytest.mark.timeout(LIMIT_S + 100)
def test_a_sweep_becomes_a_figure_and_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHAUL_CLONE", str(ROOT))
    told = "print(len(runs), runs.seed.nunique(), sorted(runs.compressor.unique()))"
    assert "9 3 ['int8', 'none', 'topk']" in executed(
        [*code_cells(NOTEBOOKS / "sweep-to-figure.ipynb"), told], tmp_path, LIMIT_S
    )
    assert (tmp_path / "accuracy.pdf").read_bytes().startswith(b"%PDF-")
    table = (tmp_path / "results.tex").read_text()
    for compressor in ("none", "topk", "int8"):
        (row,) = (line for line in table.splitlines() if line.startswith(f"ddp & {compressor} & "))
        assert any(verdict in row for verdict in VERDICTS[:2])
    assert len([path for path in (tmp_path / "runs").iterdir() if not path.name.startswith(".")]) >= 9
    said = executed(code_cells(NOTEBOOKS / "one-run.ipynb"), tmp_path, timeout_s=200)
    assert "-wan100m-ddp-" in said and "exposed_communication_s" in said and "100000000.0" in said
    assert (tmp_path / "one-run.pdf").read_bytes().startswith(b"%PDF-")
