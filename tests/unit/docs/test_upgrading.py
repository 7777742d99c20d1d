"""What docs/upgrading.md says of records of other versions is what becomes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.record.record import load
from testbed.core.errors import InputError
from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.record.run_row import read_rows
from testbed.core.record.summary import SCHEMA_VERSION
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.run_store.ended import ended_runs
from tests.unit.experiments.reproductions.fake_runs import make_run, trial

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "upgrading.md").read_text()


@pytest.fixture
def run(runs: Path) -> RunDir:
    return make_run(runs, trial())


def rewrite(path: Path, **changes: Any) -> None:
    write_json(path, json.loads(path.read_text()) | changes)


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert f"`schema_version`: {SCHEMA_VERSION} |" in PAGE and f"That is {SCHEMA_VERSION}," in PAGE
    for name, file in (
        ("longhaul_model", "model/checkpoint.py"),
        ("longhaul_server", "methods/parameter_server/checkpoint.py"),
    ):
        source = (ROOT / "testbed" / "worker" / file).read_text()
        (number,) = re.findall(rf'_FORMAT, _VERSION = "{name}", (\d+)', source)
        assert f"`{name}`: {number} |" in PAGE


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, None])
def test_another_schema_version_is_refused_by_name_and_counts_as_not_there(run: RunDir, version: int | None) -> None:
    rewrite(run.summary, schema_version=version)
    (row,) = read_rows(run.path.parent)
    assert str(row["status"]).startswith(("refused", "damaged")) and "schema version" in str(row["status"])
    with pytest.raises(InputError, match="schema version"):
        load(run.path)
    assert list(ended_runs(run.path.parent)) == []


def test_keys_that_came_and_went_are_borne(run: RunDir) -> None:
    summary = json.loads(run.summary.read_text())
    del summary["unknowns"], summary["scale"]
    write_json(run.summary, summary | {"invented_later": 1})
    rewrite(run.spec, invented_later=1)
    spec = json.loads(run.spec.read_text())
    del spec["transform"]
    write_json(run.spec, spec)
    (row,) = read_rows(run.path.parent)
    assert row["status"] == "completed"
    record = load(run.path)
    assert record.faults == () and isinstance(record.spec, RunSpec)
    assert [kept.run_id for kept in ended_runs(run.path.parent)] == [run.run_id]


def test_a_spec_whose_parts_have_other_fields_is_a_fault_and_the_rest_is_read(run: RunDir) -> None:
    spec = json.loads(run.spec.read_text())
    write_json(run.spec, spec | {"strategy": {**spec["strategy"], "invented_later": 1}})
    record = load(run.path)
    assert record.spec is None and record.summary is not None
    assert any("spec.json" in fault for fault in record.faults)
