"""Which file `start_from` means, and how the record comes to hold what a worker left."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from testbed.core.errors import RunError
from testbed.orchestrator.config.config import resolve
from testbed.orchestrator.config.models import located, take_over

RUN_ID = "20260101T000000Z-wan1g-ddp-none-0123abcd"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    run = tmp_path / "runs" / RUN_ID
    run.mkdir(parents=True)
    (run / "model.pt").write_bytes(b"tensors")
    return tmp_path / "runs"


def test_a_run_is_named_by_its_id_its_directory_or_the_file(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = runs / RUN_ID / "model.pt"
    monkeypatch.chdir(tmp_path)
    for asked in (RUN_ID, f"runs/{RUN_ID}", f"runs/{RUN_ID}/", str(runs / RUN_ID), f"runs/{RUN_ID}/model.pt"):
        assert located(asked, runs) == (str(model), [])
        resolved = resolve([f"start_from={asked}", "checkpoint=last"], runs_root=runs)
        assert resolved.spec.start_from == str(model) and resolved.spec.checkpoint == "last"
    assert resolve([]).spec.start_from is None


def test_adapters_are_asked_for_as_the_page_says() -> None:
    lora = ["transform=lora", "transform.layers=[blocks.*.attend]", "transform.train=[head,10]"]
    params = resolve(lora).spec.transform.params
    assert params == {"rank": 8, "alpha": 8.0, "layers": ["blocks.*.attend"], "train": ["head", 10]}


def test_runs_that_are_not_there_or_kept_nothing_are_refused_with_all_other_faults(runs: Path) -> None:
    (runs / RUN_ID / "model.pt").unlink()
    none = RUN_ID.replace("0123abcd", "ffffffff")
    for asked, why in (
        (RUN_ID, "it holds no model.pt; make that run again with checkpoint=last"),
        (none, f"no such run in {runs}; longhaul list names them"),
        ("build/none.pt", "no such run, directory or file"),
    ):
        fault = f"start_from={asked}: {why}"
        assert located(asked, runs) == (None, [fault])
        resolved = resolve([f"start_from={asked}", "checkpoint=first", "steps=0"], runs_root=runs)
        known = "checkpoint=first: unknown; known: none, last"
        assert {fault, known} < set(resolved.faults) and len(resolved.faults) == 3


def test_nodes_without_our_training_begin_with_nothing_and_keep_nothing(runs: Path) -> None:
    resolved = resolve(["workload=hand", f"start_from={RUN_ID}", "checkpoint=last"], runs_root=runs)
    assert [fault.partition(":")[2] for fault in resolved.faults] == [
        " the model of workload=hand is its own; leave it out"
    ] * 2


def test_what_a_worker_left_is_taken_over_whole(tmp_path: Path) -> None:
    source, target = tmp_path / "left", tmp_path / "model.pt"
    source.write_bytes(b"tensors")
    digest = hashlib.sha256(b"tensors").hexdigest()
    assert take_over(source, target) == f"model.pt, 7 bytes, SHA-256 {digest}"
    assert target.read_bytes() == b"tensors" and target.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("kind", ["nothing", "a link", "a pipe", "a directory"])
def test_what_is_no_file_of_its_own_is_not_taken_over(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "left"
    if kind == "a link":
        (tmp_path / "secret").write_text("secret")
        source.symlink_to(tmp_path / "secret")
    elif kind == "a pipe":
        os.mkfifo(source)
    elif kind == "a directory":
        source.mkdir()
    (tmp_path / "run").mkdir()
    with pytest.raises(RunError, match="checkpoint=last: rank 0 has left no model"):
        take_over(source, tmp_path / "run" / "model.pt")
    assert list((tmp_path / "run").iterdir()) == []
