"""The committed dashboards are as Grafana's own types of this version have them, panels and their options included."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dashboards.grafana_data.answers import misfits
from dashboards.grafana_data.questions import files, read_dashboards

pytestmark = pytest.mark.grafana_data

Json = dict[str, Any]


def test_all_of_the_dashboards_fits() -> None:
    assert misfits(files()) == []


def drawn(board: Json) -> Json:
    found: Json = next(panel for panel in board["panels"] if panel["type"] == "timeseries")
    return found


FAULTS: list[tuple[Callable[[Json], Any], str]] = [
    (lambda board: board.update(tyme={}), "tyme"),
    (lambda board: board.pop("schemaVersion"), "schemaVersion"),
    (lambda board: board["templating"]["list"][0].update(hide=9), "hide"),
    (lambda board: drawn(board).update(titel=""), "titel"),
    (lambda board: drawn(board)["gridPos"].update(h="8"), "'string' is not assignable to type 'number'"),
    (lambda board: drawn(board)["options"].update(nonsense=1), "nonsense"),
    (lambda board: drawn(board)["options"]["legend"].update(displayMode="lists"), "lists"),
    (lambda board: drawn(board)["fieldConfig"]["defaults"].update(unitt="s"), "unitt"),
    (lambda board: drawn(board)["fieldConfig"]["defaults"]["custom"].update(drawStyle="lins"), "lins"),
]


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    paths = []
    for number, (change, _) in enumerate(FAULTS):
        board = copy.deepcopy(read_dashboards()[0])
        change(board)
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(board))
    found = misfits(paths)
    for path, (_, words) in zip(paths, FAULTS, strict=True):
        assert any(fault.startswith(f"{path.name}: ") and words in fault for fault in found), (words, found)


def test_a_panel_that_grafana_does_not_have_is_told(tmp_path: Path) -> None:
    board = copy.deepcopy(read_dashboards()[0])
    drawn(board)["type"] = "piechrt"
    (tmp_path / "board.json").write_text(json.dumps(board))
    with pytest.raises(RuntimeError, match="no panel of type piechrt"):
        misfits([tmp_path / "board.json"])
