"""What the worker's side says of plug-ins: texts of docstrings, faults of one, and that no check trains anything."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import torch
from torch import nn

from testbed.core.spec.run_spec import RunSpec
from testbed.worker.process.describe import describe, texts
from testbed.worker.workloads.digits import Digits
from tests.distributed.harness import make_spec, part

BROKEN = {"name": "broken", "target": "nothing.of.This", "params": {}}


class TrainsFirst(Digits):
    """Digits whose weights are trained before."""

    def model(self, seed: int) -> nn.Module:
        model = super().model(seed)
        next(model.parameters()).sum().backward()
        return model


def described(groups: dict[str, list[dict[str, Any]]], asked: dict[str, list[str]]) -> dict[str, Any]:
    usual: RunSpec = make_spec(workers=4)
    groups = {"strategy": [], "compressor": [], "workload": [], "device": [], "transform": []} | groups
    for group in groups:
        name = {"strategy": "ddp", "workload": "digits", "device": "native"}.get(group, "none")
        groups[group] = [vars(part(group, name)), *groups[group]]
    question = {"spec": usual.to_json(), "parts": groups, "asked": asked}
    sink = io.StringIO()
    assert describe(io.StringIO(json.dumps(question)), sink) == 0
    found: dict[str, Any] = json.loads(sink.getvalue())["parts"]
    return found


def test_a_plug_in_that_cannot_be_loaded_hides_no_other() -> None:
    found = described({"compressor": [BROKEN]}, {"compressor": ["none", "broken"]})["compressor"]
    assert found["none"]["traits"]["lossless"] is True
    (fault,) = found["broken"]["faults"]
    assert fault.startswith("compressor=broken: cannot load 'nothing.of.This'")


def test_no_check_trains_weights_and_what_it_would_say_stays_unknown() -> None:
    trains = {"name": "trains", "target": f"{__name__}.TrainsFirst", "params": {}}
    hybrid = vars(part("strategy", "hybrid"))
    found = described({"workload": [trains], "strategy": [hybrid]}, {"workload": ["trains"]})["workload"]["trains"]
    assert found["what"] == "Digits whose weights are trained before" and found["excludes"] == []
    value = torch.ones(1, requires_grad=True)
    value.sum().backward()
    assert value.grad is not None, "training is refused while plug-ins are described, and no longer"


def test_what_excludes_what_is_said_of_both_sides() -> None:
    torch_ddp, topk = vars(part("strategy", "torch_ddp")), vars(part("compressor", "topk"))
    groups = {"strategy": [torch_ddp], "compressor": [topk]}
    found = described(groups, {"strategy": ["ddp", "torch_ddp"], "compressor": ["topk"]})
    (one,) = found["strategy"]["torch_ddp"]["excludes"]
    assert (one["group"], one["names"]) == ("compressor", ["topk"])
    assert one["because"].startswith("strategy=torch_ddp sends everything uncompressed")
    assert found["strategy"]["ddp"]["excludes"] == []
    assert [one["names"] for one in found["compressor"]["topk"]["excludes"]] == [["torch_ddp"]]


@pytest.mark.parametrize(
    ("docstring", "what", "source"),
    [
        ("One.\n\nArgs:\n    a: Text.", "One", ""),
        ("One of\ntwo lines.\n\nMore text.", "One of two lines", ""),
        (
            'It.\n\nA. Author et al., "A Long Title. With a Full Stop", ICML 2020, arXiv:2001.00001. Differs: no.',
            "It",
            'A. Author et al., "A Long Title. With a Full Stop", ICML 2020, arXiv:2001.00001',
        ),
        (
            f'It.\n\n{"Much is said before it. " * 4}Author, "A Rather Long Title", 2020.\n\nRaises:\n    X.',
            "It",
            'Author, "A Rather Long Title", 2020',
        ),
    ],
)
def test_title_and_source_are_those_of_the_docstring(docstring: str, what: str, source: str) -> None:
    found = texts(docstring)
    assert (found[0], found[2]) == (what, source)
    assert "Args" not in found[1] and "Raises" not in found[1]
