"""What it took a run to reach its target, asked of its record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.analysis.__main__ import main
from tests.unit.analysis.compared import template, variant
from tests.unit.analysis.synthetic import WAN_BYTES_S

REACHED_S = 40.0


def test_bytes_are_those_until_the_target_not_until_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, runs = template(tmp_path / "template"), tmp_path / "runs"
    metric = {"name": "accuracy", "value": 0.9, "best": 0.9, "target": 0.9}
    paths = [
        variant(source, runs, number, metric={**metric, "time_to_target_s": seconds}).path
        for number, seconds in enumerate((REACHED_S, None))
    ]
    assert main(["reached", *map(str, paths)]) == 0
    early, never = json.loads(capsys.readouterr().out)
    assert (early["run_id"], early["time_to_target_s"]) == (paths[0].name, REACHED_S)
    assert early["wan_bytes"] == pytest.approx(REACHED_S * sum(WAN_BYTES_S.values()))
    assert never == {"run_id": paths[1].name, "time_to_target_s": None, "wan_bytes": None}
    assert main(["reached", str(tmp_path / "nothing")]) == 2
