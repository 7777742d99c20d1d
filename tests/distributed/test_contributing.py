"""The plug-ins that CONTRIBUTING.md and docs/plug-ins.md show work as they stand there, all of them in one run."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.core.spec.run_spec import Part, RunSpec
from tests.distributed.harness import ROOT, part, run

PAGES = ("CONTRIBUTING.md", "docs/plug-ins.md")
KINDS = ("compressor", "strategy", "workload", "topology")
_BLOCK = re.compile(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _shown() -> dict[str, str]:
    return {name: text for page in PAGES for name, text in _BLOCK.findall((ROOT / page).read_text())}


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """The settings in each YAML file; the Python files can be imported."""
    for name, text in _shown().items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return {path.stem: yaml.safe_load(path.read_text()) for path in tmp_path.glob("*.yaml")}


def test_each_kind_is_shown_in_two_files() -> None:
    names = sorted(_shown())
    assert len([name for name in names if name.endswith(".py")]) == len(KINDS)
    assert [n.removesuffix(".py") for n in names if n.endswith(".py")] == [
        n.removesuffix(".yaml") for n in names if n.endswith(".yaml")
    ]


def test_a_run_of_nothing_but_the_shown_plugins(tmp_path: Path, plugins: dict[str, dict[str, Any]]) -> None:
    build = _load(plugins["ship"].pop("_target_"))
    topology = build(workers=2, **plugins["ship"])
    usual = plugins["line"].pop("run")
    parts = {
        "workload": _part("line", plugins["line"]),
        "compressor": _part("signs", plugins["signs"]),
        "device": part("device", "native"),
    }
    for strategy in (_part("now_and_then", plugins["now_and_then"]), part("strategy", "ddp")):
        spec = RunSpec(
            topology=topology,
            strategy=strategy,
            steps=usual["steps"],
            batch_size=usual["batch_size"],
            evaluate_every=usual["evaluate_every"],
            timeout_s=100.0,
            **parts,
        )
        (folder := tmp_path / strategy.name).mkdir()
        outcome = run(spec, folder, python_path=tmp_path)
        assert set(outcome.status.values()) == {0}, outcome.logs
        losses = outcome.losses(0)
        assert len(losses) == usual["steps"] and losses[-1] < 0.1 * losses[0]
        assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1
        assert sum(outcome.payloads(0)) > 0


def _part(name: str, settings: dict[str, Any]) -> Part:
    return Part(name, settings["_target_"], {key: value for key, value in settings.items() if key != "_target_"})


def _load(target: str) -> Any:
    module, _, name = target.rpartition(".")
    sys.modules.pop(module, None)
    return getattr(importlib.import_module(module), name)
