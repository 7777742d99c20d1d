"""Plug-ins outside the tree record notes; they come to the record, and the report has a table of each kind."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from testbed.analysis.record.record import load
from testbed.analysis.report.run_page import run_report
from testbed.core.spec.run_spec import Part
from tests.distributed.harness import make_spec, run
from tests.unit.analysis.synthetic import make_run

PLUGIN = """
from testbed.core.record.events.note import Note
from testbed.worker.interfaces.transform import Transform
from testbed.worker.strategies.ddp import DDP


class Noting(DDP):
    def bind(self, context):
        super().bind(context)
        self.context = context

    def step(self, batch, step):
        stats = super().step(batch, step)
        self.context.record(Note("losses", {"loss": stats.loss, "first": [1, None, "<b>"], "is_odd": step % 2 == 1}))
        return stats

    def finish(self):
        super().finish()
        self.context.record(Note("ended", {"rank_again": self.context.rank}))


class Watching(Transform):
    changes_the_model = False

    def bind(self, context):
        context.record(Note("watched", {"parameters": sum(1 for _ in context.model.parameters())}))
"""


@pytest.mark.tier("test")
def test_notes_of_plugins_outside_the_tree_are_in_the_record_and_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "noting.py").write_text(PLUGIN)
    spec = make_spec(steps=3, transform=Part("watching", "noting.Watching", {}))
    spec = dataclasses.replace(spec, strategy=Part("noting", "noting.Noting", spec.strategy.params))
    outcome = run(spec, tmp_path, python_path=tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.logs
    notes = outcome.of("note")
    said = [(note["kind"], note["rank"], note["step"]) for note in notes]
    for rank in (0, 1):
        assert [one for one in said if one[1] == rank] == [
            ("watched", rank, 1),
            ("losses", rank, 1),
            ("losses", rank, 2),
            ("losses", rank, 3),
            ("ended", rank, 3),
        ]
    losses = {(step["rank"], step["step"]): step["loss"] for step in outcome.of("step")}
    for note in notes:
        if note["kind"] == "losses":
            assert note["loss"] == losses[note["rank"], note["step"]] and note["first"] == [1, None, "<b>"]

    recorded = make_run(tmp_path / "runs")
    with recorded.events.open("a") as file:
        file.writelines(json.dumps(note) + "\n" for note in notes)
    html, faults = run_report(load(recorded.path))
    assert not faults
    for title in ("Notes: losses", "Notes: watched", "Notes: ended"):
        assert html.count(title) == 1
    assert "is_odd" in html and "&lt;b&gt;" in html and "<b>" not in html.partition("Notes: losses")[2]
