"""The committed dashboards are what the code makes of them, byte for byte, and hold what they should."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grafana_foundation_sdk", reason="grafana-foundation-sdk is not installed (make setup)")

with warnings.catch_warnings():
    # It would rather have version 2 of the model, which Grafana does not take from files everywhere.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    from dashboards import generate
    from dashboards.vocabulary.colors import of_methods
    from dashboards.vocabulary.queries import shortly_named

from dashboards.conventions import faults
from dashboards.interpolate import panels, targets
from testbed.analysis.style.series_style import color_among_compressors

FILES = sorted(generate.FOLDER.glob("*.json"))


def load(path: Path) -> dict[str, Any]:
    board: dict[str, Any] = json.loads(path.read_text())
    return board


def test_legends_name_runs_shortly() -> None:
    """Ids are so long that Grafana cuts legends of them off, and hides what differs."""
    legends = [target.legend for path in FILES for target in targets(load(path)) if "short" in target.legend]
    assert len(legends) > 30
    assert not [target for path in FILES for target in targets(load(path)) if "{{run}}" in target.legend]
    found = re.match(r'label_replace\(x, "short", "(.*)", "run", "(.*)"\)', shortly_named("x"))
    assert found
    short = re.sub(r"\$(\d)", r"\\\1", found[1])
    for run, name in (
        ("20261128T182344Z-wan100m-local_sgd-none-d94071e3", "wan100m-local_sgd-none 18:23:44"),
        ("20261128T182344Z-dtfm-regional4-ddp-topk-d94071e3", "dtfm-regional4-ddp-topk 18:23:44"),
        ("20261128T182344Z-measured", "measured 18:23:44"),
    ):
        whole = re.fullmatch(found[2], run)
        assert whole and whole.expand(short) == name


def test_the_committed_files_are_what_the_code_makes() -> None:
    assert generate.outdated(generate.files()) == [], "run python -m dashboards.generate"


def test_making_them_twice_makes_the_same_bytes() -> None:
    assert generate.files() == generate.files()


def test_a_changed_a_missing_and_a_foreign_file_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    (tmp_path / "changed.json").write_text("{ }")
    (tmp_path / "foreign.json").write_text("{}")
    made = {tmp_path / name: "{}" for name in ("changed.json", "missing.json")}
    assert generate.outdated(made) == ["changed.json", "foreign.json", "missing.json"]


def read_back(board: dict[str, Any]) -> dict[str, Any]:
    """What Grafana's model, as the SDK has it, makes of a dashboard: a key that it does not know is lost."""
    register_default_plugins()
    again: dict[str, Any] = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))
    for link in again["links"]:
        # The one key that the model has a mind of its own about.
        assert link.pop("placement") == "inControlsMenu"
    return again


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_grafana_s_own_model_reads_it_back_unchanged(path: Path) -> None:
    """In place of the published JSON schema."""
    board = load(path)
    assert read_back(board) == board


@pytest.mark.parametrize(
    "where",
    [(), ("options",), ("options", "legend"), ("fieldConfig", "defaults"), ("fieldConfig", "defaults", "custom")],
    ids=".".join,
)
def test_a_misspelt_key_is_found(where: tuple[str, ...]) -> None:
    board = load(generate.FOLDER / "run.json")
    inner = next(panel for panel in panels(board) if panel["type"] == "timeseries")
    for key in where:
        inner = inner[key]
    inner["misspelt"] = True
    assert read_back(board) != board


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_conventions_hold(path: Path) -> None:
    assert faults(load(path)) == []


def test_there_is_one_dashboard_for_each_question() -> None:
    boards = [load(path) for path in FILES]
    assert {board["title"] for board in boards} == {"Run", "Compare", "Links", "Fidelity", "Sweep"}
    assert len({board["uid"] for board in boards}) == len(boards)
    assert all(board["schemaVersion"] == 42 for board in boards)


def test_panels_for_everything_that_is_to_be_seen() -> None:
    titles = {panel["title"] for path in FILES for panel in panels(load(path))}
    assert titles >= {
        "Metric over elapsed time",
        "Time to target",
        "Time to $accuracy accuracy",
        "Metric over WAN bytes",
        "Bytes on the wire over bytes claimed",
        "Compression claimed",
        "Compression on the wire",
        "Use of the WAN links",
        "Round trip",
        "Drops at queues",
        "Segments sent again",
        "Queueing delay",
        "Where a step's time goes",
        "Communication hidden behind computing",
        "Step time",
        "Samples per second",
        "Scaling efficiency",
        "Slowest rank over the median",
        "Waiting for others, by rank",
        "Waiting for a core",
        "Held back by a quota",
        "Collector late",
        "Were cores short?",
        "Verdict",
        "Runs",
        "Speed-up over no compression",
    }


def test_no_panel_is_said_twice_with_different_queries() -> None:
    said: dict[str, set[str]] = {}
    for path in FILES:
        for panel in panels(load(path)):
            exprs = json.dumps([target["expr"] for target in panel["targets"]])
            said.setdefault(f"{panel['title']} ({panel['type']})", set()).add(exprs)
    assert {title: exprs for title, exprs in said.items() if len(exprs) > 1} == {}


def test_what_the_variables_choose_from_is_chained() -> None:
    for path in FILES:
        variables = {v["name"]: v for v in load(path)["templating"]["list"]}
        assert list(variables)[:3] == ["datasource", "topo", "compressor"]
        assert 'topo=~"$topo"' in variables["compressor"]["query"]["query"]
        assert 'topo=~"$topo",compressor=~"$compressor"' in variables["run"]["query"]["query"]
        assert variables["run"]["multi"] == (path.stem != "run")


@pytest.mark.parametrize("name", ["none", "topk", "chunked_topk", "int8", "int8_zstd", "deepreduce_bloom"])
@pytest.mark.parametrize(
    "series",
    [
        *("{}", "{} wan1g digits", "time to target {}", "20260101T000000Z-wan1g-ddp-{}-0f7d41cd"),
        *("wan1g-ddp-{} 18:23:44", "wan1g-ddp-{} 18:23:44 accuracy"),
    ],
)
def test_a_series_has_its_method_s_colour_and_no_other(name: str, series: str) -> None:
    found = []
    for matcher, (shade,) in of_methods():
        assert isinstance(matcher.options, str) and isinstance(shade.value, dict)
        if re.search(matcher.options.strip("/"), series.format(name)):
            found.append(shade.value["fixedColor"])
    color = color_among_compressors(name)
    assert found == ["text" if color == "#000000" else color]


def test_every_target_is_found() -> None:
    assert sum(len(targets(load(path))) for path in FILES) > 60
