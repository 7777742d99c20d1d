"""`longhaul laws` with its runs, which the README's command leaves out."""

from __future__ import annotations

import pytest

from testbed.core.errors import EXIT_COMPLETED, EXIT_INVALID
from tests.slow.support import run

pytestmark = pytest.mark.needs_root


@pytest.mark.timeout(700)
def test_a_compressor_runs_beside_known_ones(tmp_path: object) -> None:
    done = run(f"sudo .venv/bin/longhaul laws topk density=0.001 --no-speed --runs {tmp_path}/runs", 650)
    assert done.returncode in (EXIT_COMPLETED, EXIT_INVALID), f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "topk is lawful" in done.stdout
    rows = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    for name in ("none", "bf16", "topk"):
        assert name in rows, f"no row of {name}:\n{done.stdout}"
