"""Tables of parameters and defaults of YAML files are those that classes declare, and what is planted is found."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from scripts import parameters_doc as doc
from testbed.core.kinds import Kind


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the pages and YAML files, which are as they have to be."""
    shutil.copytree(doc.DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("figures"))
    shutil.copytree(doc.CONF, tmp_path / "experiments" / "conf")
    monkeypatch.setattr(doc, "ROOT", tmp_path)
    monkeypatch.setattr(doc, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(doc, "PAGE", tmp_path / "docs" / "parameters.md")
    monkeypatch.setattr(doc, "TABLE", tmp_path / "docs" / "tables" / "parameters.csv")
    monkeypatch.setattr(doc, "CONF", tmp_path / "experiments" / "conf")
    return tmp_path


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def found(capsys: pytest.CaptureFixture[str]) -> str:
    assert doc.main(["--check"]) == 1
    return capsys.readouterr().out


def test_every_parameter_is_declared_and_every_table_is_current(tree: Path) -> None:
    assert doc.main(["--check"]) == 0
    declared = [one for entry in doc.entries() for one in doc._parameters(entry)]
    assert len(declared) > 500
    assert all(isinstance(one.kind, Kind) and one.sentence for one in declared)


@pytest.mark.parametrize(
    ("page", "old", "new"),
    [
        ("parameters.md", "`density=0.01`", "`density=0.02`"),
        ("tables/parameters.csv", "topk,density,0.01,", "topk,density,0.02,"),
        ("tables/parameters.csv", 'density,0.01,"(0,1]"', 'density,0.01,"[0,1]"'),
        ("tables/parameters.csv", "bucket_size,4 MiB,size", "bucket_size,4 MiB,rate"),
        ("tables/parameters.csv", "round_timeout_s,120.0,>0 s", "round_timeout_s,120.0,>0 ms"),
        ("freezing.md", "`cache_from=1` (≥1)", "`cache_from=1` (≥0)"),
    ],
)
def test_a_wrong_default_unit_or_range_in_a_page_is_a_fault(
    tree: Path, capsys: pytest.CaptureFixture[str], page: str, old: str, new: str
) -> None:
    replace(tree / "docs" / page, old, new)
    assert found(capsys) == f"docs/{page} is not what classes declare: run scripts/parameters_doc.py\n"


def test_a_page_that_is_not_current_is_written(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for page in ("parameters.md", "tables/parameters.csv"):
        replace(tree / "docs" / page, "density", "dense")
    found(capsys)
    assert doc.main([]) == 0
    assert doc.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("compressor/topk", "0.01", "0.02", "density: 0.02, and compressors.topk.TopK declares 0.01"),
        ("compressor/topk", "0.01", "2", "density=2: must be in (0, 1]"),
        ("compressor/topk", "density", "dense", "dense: unknown to compressors.topk.TopK"),
        ("strategy/mpd_kfac", "mpd", "mdp", "variant=mdp: unknown; did you mean dp? known: d, mpd, spd, pad, dp"),
        ("topo/ring", "40 ms", "40 MB", "rtt=40 MB: time '40 MB': unknown unit 'MB'"),
        ("topo/lossy", "0.5%", "500%", "loss=500%: ratio '500%': must be from 0 to 1"),
        ("workload/replay", "resnet50", "resnet", "model=resnet: unknown; did you mean resnet50? known: "),
    ],
)
def test_a_yaml_file_that_differs_from_its_class_is_a_fault(
    tree: Path, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str, told: str
) -> None:
    replace(tree / "experiments" / "conf" / f"{file}.yaml", old, new)
    assert f"experiments/conf/{file}.yaml: {told}" in found(capsys)


def test_writing_the_pages_makes_no_yaml_file_right(tree: Path) -> None:
    replace(tree / "experiments" / "conf" / "compressor" / "topk.yaml", "0.01", "0.02")
    assert doc.main([]) == 1


def test_a_file_has_a_row_with_its_own_default_where_several_share_a_class(tree: Path) -> None:
    assert doc.main([]) == 0
    rows = list(csv.DictReader((tree / "docs" / "tables" / "parameters.csv").read_text().splitlines()))
    found = {row["name"]: row["default"] for row in rows if row["key"] == "sync_every"}
    assert (found["diloco"], found["local_sgd"]) == ("50", "10")
    (needed,) = [row for row in rows if row["name"] == "cifar10" and row["key"] == "path"]
    assert (needed["default"], needed["values"].split(",")[0]) == ("", "required")
