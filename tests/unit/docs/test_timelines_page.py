"""The tables of docs/timelines.md have every batch and every published length of a device; its command asks for one."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from testbed.core.device.timelines.published import PUBLISHED
from testbed.core.device.timelines.timeline import FORMAT, VERSION
from testbed.core.device.timelines.timeline_library import MEASURED_PRECISIONS, batch_sizes, models
from testbed.orchestrator.config.config import resolve
from testbed.worker.training.parts import build_parts

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "timelines.md").read_text()


def rows(table: str) -> list[dict[str, str]]:
    """Return the rows of a table that the page links to."""
    assert f"(tables/{table}.csv)" in PAGE
    return list(csv.DictReader((DOCS / "tables" / f"{table}.csv").read_text().splitlines()))


def test_the_table_of_models_has_all_measured_batches() -> None:
    assert {row.pop("model"): row for row in rows("timelines-batches")} == {
        model: {
            precision: ", ".join(map(str, batch_sizes("h200", model, precision))) or "-"
            for precision in MEASURED_PRECISIONS
        }
        for model in models("h200")
    }


def test_the_table_of_lengths_has_all_that_were_published() -> None:
    found = {(row["model"], int(row["batch"]), float(row["step, s"])) for row in rows("timelines-published")}
    lengths = [one for device in PUBLISHED.values() for one in device.lengths]
    assert found == {(one.model, one.batch_size, round(one.seconds, 3)) for one in lengths}


def test_the_format_of_the_file_is_named() -> None:
    assert f'`format` ("{FORMAT}"), `version` ({VERSION})' in PAGE


def test_its_command_asks_for_what_there_is() -> None:
    command = re.search(r"make experiment TOPO=(\S+) WORKLOAD=(\S+) SET=\"(.*)\"", PAGE)
    assert command is not None
    topo, workload, rest = command.groups()
    parts = build_parts(resolve([f"topo={topo}", f"workload={workload}", *rest.split(), "dilation=1"]).spec)
    assert parts.device.where == "device=h200"  # type: ignore[attr-defined]
