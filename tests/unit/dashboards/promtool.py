"""Debian's promtool, and what the tests ask of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.interpolate import ANY, interpolate
from tests.waiting import HANG_S

RANGE_S = 60.0
CHOSEN: dict[str, str] = {
    "run": ANY,
    "topo": ANY,
    "compressor": ANY,
    "verdict": "valid|suspect|unknown",
    "accuracy": "0.75",
}
"""What the variables stand for in these tests."""


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=HANG_S, check=False)


def sent(expr: str) -> str:
    """As Grafana would send it for a minute in steps of a second."""
    return interpolate(expr, CHOSEN, RANGE_S)


def check_rules(exprs: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Whether Prometheus can parse them: each as a recording rule, named by its key."""
    rules = [{"record": name, "expr": expr} for name, expr in exprs.items()]
    path = folder / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    return promtool("check", "rules", str(path))


def evaluate(expr: str, series: dict[str, str], expected: dict[str, float], folder: Path) -> None:
    """Assert what an expression gives at the end of a minute.

    Args:
        series: values of each series, a second apart, in promtool's notation.
        expected: value by labels, as `{run="a"}`. promtool 2.42 compares exactly, so values are sums of powers of two.
    """
    case: dict[str, Any] = {
        "interval": "1s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": sent(expr),
                "eval_time": "60s",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in expected.items()],
            }
        ],
    }
    path = folder / "test.yml"
    path.write_text(yaml.safe_dump({"evaluation_interval": "1s", "tests": [case]}))
    found = promtool("test", "rules", str(path))
    assert found.returncode == 0, found.stdout + found.stderr
