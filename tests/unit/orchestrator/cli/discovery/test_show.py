"""`longhaul show`: everything that plug-ins declare, in a table, about one, as JSON, and of a user's own files."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.cli.discovery import catalogue
from testbed.orchestrator.cli.discovery.kinds import KINDS
from testbed.orchestrator.cli.main import main
from testbed.orchestrator.config.config import names, resolve
from testbed.orchestrator.config.keys import contents
from testbed.orchestrator.machine.clone import CONF_DIR
from testbed.orchestrator.run.questions import plugins
from testbed.worker.training.parts import build_parts

GROUPS = tuple(KINDS.values())
MINE = """
from typing import Annotated

from compressors.topk import TopK
from testbed.core.kinds import Whole


class Mine(TopK):
    \"""Send what there is.

    Nobody, "A Title of Some Length", Journal of Nothing, 2026. More of it.

    Args:
        level: Level of [bold]nothing[/bold].
    \"""

    def __init__(self, *, level: Annotated[int, Whole(1, 9)] = 1, feedback: str = "auto") -> None:
        super().__init__(feedback=feedback)
"""
NET = 'regions: {paris: 2, lima: 1}\nlinks:\n  - {a: paris, b: lima, rate: 50 Mbit/s, rtt: 180 ms, source: "mine"}\n'


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["show", *words]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["show", *words]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("group", GROUPS)
def test_every_plugin_is_described_with_all_its_parameters(group: str) -> None:
    found = catalogue.descriptions(group)
    assert list(found) == names(group)
    for name, one in found.items():
        assert one["what"] and one["target"], name
        keys = set(contents(CONF_DIR / group / f"{name}.yaml")) - {"_target_", "run"}
        assert keys <= {parameter["name"] for parameter in one["parameters"]}, name
        for parameter in one["parameters"]:
            assert parameter["meaning"], (name, parameter)
            assert parameter["type"] or "program" in one["traits"], (name, parameter)
            given = contents(CONF_DIR / group / f"{name}.yaml").get(parameter["name"])
            assert given in (None, "???", parameter["default"]), (name, parameter)


@pytest.mark.parametrize("group", GROUPS)
def test_a_table_has_a_row_for_each_and_json_everything(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = next(kind for kind, one in KINDS.items() if one == group)
    text = shown(capsys, kind)
    for name in names(group):
        assert re.search(rf"^ *{re.escape(name)} ", text, re.MULTILINE), name
    found = json.loads(shown(capsys, kind, "--json"))
    assert [one["name"] for one in found] == names(group) and {one["group"] for one in found} == {group}


def test_kinds_are_said_by_the_traits(capsys: pytest.CaptureFixture[str]) -> None:
    def row(text: str, name: str) -> str:
        return next(line for line in text.splitlines() if line.split()[:1] == [name])

    text = shown(capsys, "compressors")
    assert "lossy, biased, gathered, sparse, error feedback: plain" in row(text, "topk")
    assert "lossless, gathered" in row(text, "zstd")
    assert "lossy, unbiased" in row(text, "qsgd") and "takes over the optimizer" in row(text, "demo")
    text = shown(capsys, "strategies")
    assert "exchanges rarely: every 10 steps" in row(text, "local_sgd")
    assert "exchanges every step" in row(text, "ddp")
    assert "survives lost workers" in row(text, "parameter_server")
    assert "device.file" in row(shown(capsys, "devices"), "profile")
    assert "workload.path" in row(shown(capsys, "workloads"), "cifar10")
    assert "3 regions, 3 WAN links, 5 Gbit/s, RTT 11 ms to 67 ms, 3 workers" in row(shown(capsys, "topologies"), "us3")


def test_all_about_one(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "strategies", "diloco")
    assert text.startswith("strategy=diloco: Replicas train by themselves")
    assert 'Douillard et al., "DiLoCo: Distributed Low-Communication' in text
    assert re.search(r"sync_every +50 +whole number +at least 1 +Steps between exchanges of", text)
    assert re.search(r"replicas +worker +choice +worker, region ", text)
    assert "compressor=demo, onebit_adam" in text and "takes over the optimizer" in text.replace("\n    ", " ")
    assert text.rstrip().endswith("Example: sudo .venv/bin/longhaul run strategy=diloco")
    text = shown(capsys, "topology", "us3")
    assert "ohio ══ WAN ══ oregon" in text and "3 workers" in text and "jitter_distribution" in text


@pytest.mark.parametrize("words", [("compressors", "topk"), ("compressor", "topk"), ("compressor=topk",)])
def test_one_is_named_in_the_words_of_a_run_too(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    one = json.loads(shown(capsys, *words, "--json"))
    assert (one["group"], one["name"], one["traits"]["contraction"]) == ("compressor", "topk", 0.01)
    assert one["source"].startswith("Aji and Heafield") and one["source"].endswith("arXiv:1704.05021")
    (density,) = [parameter for parameter in one["parameters"] if parameter["name"] == "density"]
    assert density == {
        "name": "density",
        "type": "number",
        "values": "in (0, 1]",
        "unit": "",
        "choices": None,
        "default": 0.01,
        "required": False,
        "null": False,
        "meaning": "Kept / all entries.",
    }


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("strategies", "dilco"), "strategy=dilco: unknown strategy; did you mean diloco? known: ddp,"),
        (("topologies", "wan1gg"), "topo=wan1gg: unknown topology; did you mean wan1g? known:"),
        (("strategis",), "show strategis: unknown kind; did you mean strategies? known: compressors,"),
        (("topk",), "show topk: unknown kind; did you mean show compressors topk? known:"),
        (("compressor=./nosuch.yaml",), "No such file or directory; give the path of a file"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_was_meant(
    words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line in refused(capsys, *words)


def _composed(words: list[str]) -> RunSpec | None:
    resolved = resolve(words)
    assert resolved.faults == (), words
    return resolved.stand_in


def test_every_example_is_a_run_that_the_checks_take() -> None:
    count = 0
    for group in GROUPS:
        for name in names(group):
            example = catalogue_example(group, name)
            assert example.startswith("sudo .venv/bin/longhaul ")
            words = shlex.split(example)[3:]
            if "..." in example or "--" in words or words in ([f"{group}={name}"], ["topo=us3"]):
                continue  # it depends on the user's files, or is the usual run
            count += 1
            spec = _composed(words)
            assert spec is not None
            build_parts(spec)
    assert count >= 2


def catalogue_example(group: str, name: str) -> str:
    from testbed.orchestrator.cli.discovery.show import _as_data

    return str(_as_data(group, catalogue.description(group, name))["example"])


@pytest.mark.parametrize("compressor", ["topk", "demo", "eden"])
def test_what_is_said_to_exclude_each_other_is_what_a_run_refuses(compressor: str) -> None:
    usual, parts = _composed([]), catalogue._parts()
    assert usual is not None
    back = catalogue.descriptions("compressor")[compressor]["excludes"]
    for strategy, found in catalogue.descriptions("strategy").items():
        if strategy == "kv_transfer":  # needs another workload and number of workers
            continue
        said = any(compressor in one["names"] for one in found["excludes"] if one["group"] == "compressor")
        assert said == any(strategy in one["names"] for one in back if one["group"] == "strategy")
        chosen = {"strategy": parts["strategy"][strategy], "compressor": parts["compressor"][compressor]}
        assert said == _is_refused(dataclasses.replace(usual, **chosen)), strategy  # type: ignore[arg-type]


def _is_refused(spec: RunSpec) -> bool:
    try:
        build_parts(spec)
    except InputError:
        return True
    return False


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "mine.yaml").write_text("_target_: mine.Mine\nlevel: 3\n")
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "broken.yaml").write_text("_target_: broken.Broken\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_of_the_users_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "compressor=./mine.yaml")
    assert text.startswith("compressor=./mine.yaml: Send what there is\n")
    assert re.search(r"level +3 +whole number +at least 1 and at most 9 +Level of \[bold\]nothing\[/bold\]\.", text)
    assert 'Nobody, "A Title of Some Length", Journal of Nothing, 2026' in text
    assert "strategy=kv_transfer, torch_ddp" in text
    assert "Example: sudo .venv/bin/longhaul run compressor=./mine.yaml" in text
    assert "nothing_of_this_name" in refused(capsys, "compressors", "./broken.yaml")


def test_a_network_of_the_users_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = json.loads(shown(capsys, "topologies", "./net.yaml", "--json"))
    assert one["traits"] == {
        "regions": ["paris", "lima"],
        "workers": 3,
        "wan_links": 1,
        "rate_bit_s": [50e6],
        "rtt_s": [0.18],
    }


def test_the_answer_is_kept_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources, asked = tmp_path / "sources", []
    sources.mkdir()
    (sources / "one.py").write_text("A = 1\n")

    def answer(command: str, question: dict[str, Any], *_: object) -> dict[str, Any]:
        asked.append(command)
        said = {"what": "It", "target": "a.B", "traits": {}, "parameters": []}
        return {"parts": {group: dict.fromkeys(several, said) for group, several in question["asked"].items()}}

    monkeypatch.setattr(plugins, "ask_worker", answer)
    monkeypatch.setattr(catalogue, "CACHE", tmp_path / "new" / "plugins.json")
    monkeypatch.setattr(catalogue, "CLONE", tmp_path)
    monkeypatch.setattr(catalogue, "_SOURCES", ("sources",))
    for _ in range(2):
        assert set(catalogue.descriptions("device")) == {path.stem for path in (CONF_DIR / "device").glob("*.yaml")}
    assert asked == ["describe"]
    (sources / "one.py").write_text("A = 1234\n")
    catalogue.descriptions("device")
    assert asked == ["describe"] * 2
    (tmp_path / "new" / "plugins.json").write_text('{"key": "half a fi')
    catalogue.descriptions("device")
    assert asked == ["describe"] * 3
