"""docs/timelines.md says what devices have: every batch, every published length, every key, and its command."""

from __future__ import annotations

import re
from pathlib import Path

from testbed.core.device.timelines.published import PUBLISHED
from testbed.core.device.timelines.timeline import FORMAT, VERSION, Timeline
from testbed.core.device.timelines.timeline_library import MEASURED_PRECISIONS, batch_sizes, models
from testbed.orchestrator.config.config import resolve
from testbed.worker.training.parts import build_parts

PAGE = (Path(__file__).parents[3] / "docs" / "timelines.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_of_models_has_all_measured_batches() -> None:
    found = {model: cells[1:] for cells in rows("Models and batches of the H200") for model in cells[0].split(", ")}
    assert found == {
        model: [", ".join(map(str, batch_sizes("h200", model, precision))) or "-" for precision in MEASURED_PRECISIONS]
        for model in models("h200")
    }


def test_the_table_of_lengths_has_all_that_were_published() -> None:
    found = {
        (model, int(batch), float(seconds))
        for _, models_, batches, lengths, _ in rows("Published lengths")
        for model, batch, seconds in zip(
            models_.split(", "), batches.split(", "), re.findall(r"0\.\d{3}", lengths), strict=True
        )
    }
    lengths = [one for device in PUBLISHED.values() for one in device.lengths]
    assert found == {(one.model, one.batch_size, round(one.seconds, 3)) for one in lengths}


def test_the_table_of_keys_has_those_of_the_file() -> None:
    keys = [key.strip("`") for cells in rows("The file") for key in cells[0].split(", ")]
    assert keys == ["format", "version", *Timeline.__annotations__]
    assert f'`"{FORMAT}"`, {VERSION}' == rows("The file")[0][1]


def test_its_command_asks_for_what_there_is() -> None:
    command = re.search(r"make experiment TOPO=(\S+) WORKLOAD=(\S+) SET=\"(.*)\"", PAGE)
    assert command is not None
    topo, workload, rest = command.groups()
    parts = build_parts(resolve([f"topo={topo}", f"workload={workload}", *rest.split(), "dilation=1"]).spec)
    assert parts.device.where == "device=h200"  # type: ignore[attr-defined]
