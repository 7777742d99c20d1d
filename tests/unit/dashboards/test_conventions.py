"""Each rule finds what it is for: a violation is planted in a dashboard that has none."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from dashboards.conventions import RULES, faults

Board = dict[str, Any]
SCOPE = 'run=~"$run",compressor=~"$compressor",topo=~"$topo"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def panel(number: int, x: int, expr: str, **changes: Any) -> Board:
    made = {
        "id": number,
        "type": "timeseries",
        "title": f"Panel {number}",
        "description": "What it shows.",
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": "s"}},
        "gridPos": {"x": x, "y": 1, "w": 12, "h": 8},
        "targets": [{"refId": "A", "datasource": DATASOURCE, "expr": expr, "legendFormat": "{{run}}"}],
    }
    return {**made, **changes}


def sound() -> Board:
    names = ("topo", "compressor", "run")
    query = {"type": "query", "refresh": 2, "datasource": DATASOURCE, "query": "label_values(topo)"}
    return {
        "uid": "sound",
        "timezone": "utc",
        "time": {"from": "2020-01-01T00:00:00.000Z", "to": "2020-01-01T00:05:00.000Z"},
        "templating": {"list": [{"name": "datasource", "type": "datasource"}, *({"name": n, **query} for n in names)]},
        "panels": [
            {"id": 9, "type": "row", "title": "Row", "gridPos": {"x": 0, "y": 0, "w": 24, "h": 1}},
            panel(1, 0, f"max by (run) (longhaul_train_loss{{{SCOPE}}})"),
            panel(2, 12, f"sum by (run) (rate(longhaul_payload_bytes_total{{{SCOPE}}}[$__rate_interval]))"),
        ],
    }


def _expr(old: str, new: str) -> Callable[[Board], None]:
    def change(board: Board) -> None:
        for one in board["panels"][1:]:
            one["targets"][0]["expr"] = one["targets"][0]["expr"].replace(old, new)

    return change


def _set(*path: str | int, to: Any) -> Callable[[Board], None]:
    def change(board: Board) -> None:
        inner: Any = board
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to

    return change


FIXED = {"type": "prometheus", "uid": "abc"}
PLANTED: list[tuple[str, Callable[[Board], None]]] = [
    ("data source is the variable", _set("panels", 1, "datasource", to=FIXED)),
    ("data source is the variable", _set("panels", 2, "targets", 0, "datasource", to=FIXED)),
    ("data source is the variable", _set("templating", "list", 1, "datasource", to=FIXED)),
    ("panels say what they show", _set("panels", 1, "description", to=" ")),
    ("panels say what they show", _set("panels", 1, "title", to="Panel 2")),
    ("panels say what they show", _set("panels", 1, "fieldConfig", to={"defaults": {}})),
    ("panels say what they show", _set("panels", 1, "targets", to=[])),
    ("rates span the interval", _expr("$__rate_interval", "1m")),
    ("counters are not read raw", _expr("[$__rate_interval]", "")),
    ("metrics exist", _expr("longhaul_train_loss", "longhaul_train_los")),
    ("metrics exist", _expr("longhaul_train_loss{", 'longhaul_train_loss{step="1",')),
    ("queries follow the choice", _expr(',topo=~"$topo"', "")),
    ("queries follow the choice", _expr(f"{{{SCOPE}}}", "")),
    ("instant queries look back", _set("panels", 1, "targets", 0, "instant", to=True)),
    ("variables are defined", _expr("$topo", "$topology")),
    ("variables are defined", _set("panels", 1, "title", to="Loss at $moment")),
    ("variables follow the time range", _set("templating", "list", 2, "refresh", to=1)),
    ("ids are unique", _set("panels", 1, "id", to=2)),
    ("ids are unique", _set("panels", 0, "id", to=0)),
    ("ids are unique", lambda board: board["panels"][1]["targets"].append(board["panels"][1]["targets"][0])),
    ("panels do not overlap", _set("panels", 2, "gridPos", "x", to=11)),
    ("panels do not overlap", _set("panels", 2, "gridPos", "w", to=13)),
    ("the range is the archive s", _set("timezone", to="browser")),
    ("the range is the archive s", _set("time", to={"from": "now-1h", "to": "now"})),
]


def test_the_sound_dashboard_has_no_fault() -> None:
    assert faults(sound()) == []


@pytest.mark.parametrize(("rule", "plant"), PLANTED, ids=[f"{n} {rule}" for n, (rule, _) in enumerate(PLANTED)])
def test_a_planted_violation_is_found(rule: str, plant: Callable[[Board], None]) -> None:
    board = copy.deepcopy(sound())
    plant(board)
    assert any(fault.startswith(f"sound: {rule}: ") for fault in faults(board)), faults(board)


def test_every_rule_has_a_violation() -> None:
    assert {rule for rule, _ in PLANTED} == set(RULES)
