"""Which files a figure depends on, and which changes of them make it stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.common import harness, sources
from experiments.common.benchmark import load

PREDICTED = {"simulator.json", "steps.py", "paths.py", "profile.py", "collective.py"}
FIRST = '''"""What it is."""
from os import path

A = 1  # why


def f(x: int) -> int:
    """What it does."""
    from os import sep

    return x + len(sep)
'''


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("accuracy", {"measure.py", "network.py", "topology.py", "testnet.py", "flow.py", "stream.py", "point.py"}),
        ("simulator", {"measure.py", "whole_run.py", "step_plan.py", "loop.py", "topk.py"}),
        ("gaps", {"tap.py", "tc.py", "network.py"}),
        ("dilation", {"rank.py", "network.py"}),
        ("set_up", {"runc_container.py"}),
        ("monitor", {"collector.py", "background.py", "star.py"}),
        ("observation", {"collector.py", "recorder.py", "exporter.py", "workers.py"}),
        ("netem", {"guest.py", "offered_load.py", "measure.py"}),
        ("codecs", {"codec_process.py", "throughput.py", "lockstep.py"}),
        ("learning", {"lockstep_training.py", "glyphs.py", "glyph_images.py"}),
        ("freezing", {"freeze.py", "freeze_policy.py", "tiny_vit.py"}),
        ("large_batch", {"slamb.py", "dear.py", "weak_scaling.py"}),
        ("low_rank", {"pufferfish.py", "weak_scaling.py"}),
        *(
            (name, PREDICTED)
            for name in ("study_scale", "study_compressors", "grace", "kfac", "large_batch", "low_rank")
        ),
    ],
)
def test_figures_depend_on_what_measures_or_predicts_them(name: str, files: set[str]) -> None:
    benchmark = load(name)
    point = benchmark.points()[0]
    found = harness.files_of(benchmark, point.asked)
    assert files <= {path.name for path in found}
    assert sources.file(f"experiments.benchmarks.{name}.measure") in found
    assert sources.file("experiments.common.papers.declaration") not in found
    assert len(harness.code_hash(benchmark, point.asked)) == 16


def hash_of(folder: Path, **texts: str) -> str:
    """Of files with these texts; names are without `.py`."""
    sources._meanings.cache_clear()
    for old in folder.glob("*"):
        old.unlink()
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return sources.hash_of(folder.glob("*.py"))


@pytest.mark.parametrize(
    "texts",
    [
        {"b": FIRST},
        {"a": FIRST.replace("  # why", "").replace("x + len(sep)", "(x +  len(sep))")},
        {"a": FIRST.replace("What it does.", "What it does now.").replace("What it is.", "")},
        {"a": FIRST.replace("from os import path", "import sys\nfrom posix import path")},
        {"a": FIRST.replace("from os import sep", "from posixpath import sep")},
        {"a": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import os\n" + FIRST},
        {"a": FIRST.replace("A = 1  # why\n", ""), "b": "A = 1\n"},
        {"a": FIRST.replace("A = 1  # why\n", "") + "\n\nA = 1\n"},
    ],
    ids=["path", "comment and format", "docstring", "imports", "late import", "typing", "other file", "order"],
)
def test_what_makes_no_figure_stale_changes_no_hash(texts: dict[str, str], tmp_path: Path) -> None:
    assert hash_of(tmp_path, **texts) == hash_of(tmp_path, a=FIRST)


@pytest.mark.parametrize(
    "text",
    [
        FIRST.replace("A = 1", "A = 2"),
        FIRST.replace("A = 1", 'A = "1"'),
        FIRST.replace("x +", "x -"),
        FIRST.replace("int) ->", "float) ->"),
        FIRST + "B = 1\n",
        FIRST + "if A:\n    B = 1\n",
    ],
)
def test_a_definition_that_changes_changes_the_hash(text: str, tmp_path: Path) -> None:
    assert hash_of(tmp_path, a=text) != hash_of(tmp_path, a=FIRST)


def test_of_settings_values_count_and_their_format_does_not(tmp_path: Path) -> None:
    texts = {"a.json": '{"goodput": 0.9}', "b.json": '{"goodput": 0.8}', "c.yaml": "a: 1  # why", "d.yaml": "{a: 1}"}
    hashes = []
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        hashes.append(sources.hash_of([tmp_path / name]))
    assert hashes[0] != hashes[1] and hashes[2] == hashes[3]


def test_a_members_figures_depend_on_its_own_files_and_what_they_import() -> None:
    files = {path.name for path in sources.of_compressor("int8_zstd")}
    assert {
        "zstd.py",
        "int8.py",
        "blockwise.py",
        "codec_process.py",
        "codec_child.py",
        "compressor.py",
        "routes.py",
        "int8_zstd.yaml",
    } <= files
    assert not {"topk.py", "sz3.py", "selection.py"} & files
