"""The plug-ins that CONTRIBUTING.md and docs/plug-ins.md show work as they stand there, in runs of any length."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import ROOT, Outcome, make_spec, part, run

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
        "device": part("device", "native"),
        "batch_size": usual["batch_size"],
        "timeout_s": 100.0,
    }
    for strategy, compressor in (
        (_part("now_and_then", plugins["now_and_then"]), part("compressor", "none")),
        (part("strategy", "ddp"), _part("signs", plugins["signs"])),
    ):
        for steps in (1, 7, 10, usual["steps"]):
            evaluated = {"evaluate_every": usual["evaluate_every"], "steps": steps}
            spec = RunSpec(topology=topology, strategy=strategy, compressor=compressor, **evaluated, **parts)
            (folder := tmp_path / f"{strategy.name}-{steps}").mkdir()
            _judge(run(spec, folder, python_path=tmp_path), steps, every=plugins["now_and_then"]["every"])


def _judge(outcome: Outcome, steps: int, every: int) -> None:
    assert set(outcome.status.values()) == {0}, outcome.logs
    losses = outcome.losses(0)
    assert len(losses) == steps and (steps < 40 or losses[-1] < 0.1 * losses[0])
    ends = outcome.of("done")
    assert len(ends) == 2 and len({done["parameters_crc32"] for done in ends}) == 1
    assert sum(outcome.payloads(0)) + ends[0]["finish_payload_bytes"] > 0
    for step in outcome.of("step"):
        phase_s = {name: seconds for name, seconds in step["phase_s"].items() if name != "communicate"}
        assert sum(phase_s.values()) <= step["step_s"] + 1e-6, "the phases of a step add up to it"
        if step["payload_bytes"] and step["step"] % every == 0:
            assert phase_s["exposed_communication"] > 0


def test_a_shown_strategy_is_refused_with_a_compressor(plugins: dict[str, dict[str, Any]]) -> None:
    spec = make_spec(compressor="topk")
    spec = dataclasses.replace(spec, strategy=_part("now_and_then", plugins["now_and_then"]))
    with pytest.raises(InputError, match="compressor=topk: strategy=now_and_then sends everything uncompressed"):
        build_parts(spec)


def _part(name: str, settings: dict[str, Any]) -> Part:
    return Part(name, settings["_target_"], {key: value for key, value in settings.items() if key != "_target_"})


def _load(target: str) -> Any:
    module, _, name = target.rpartition(".")
    sys.modules.pop(module, None)
    return getattr(importlib.import_module(module), name)
