from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.models.catalogue import ModelOrFile, find_model
from testbed.core.models.model_file import model_to_json, read_model

TABLE: dict[str, Any] = {
    "format": "longhaul-model",
    "version": 1,
    "model": "mine",
    "sample": "8 tokens",
    "source": "a test",
    "layers": [["a", [[4, 3], [4]], 24], ["attention", [], 96.5], ["b", [[2, 4]], 16]],
}


def _written(folder: Path, **changes: Any) -> Path:
    path = folder / "mine.json"
    path.write_text(json.dumps(TABLE | changes))
    return path


def test_a_table_comes_back_from_its_file_and_is_a_model_by_its_path(tmp_path: Path) -> None:
    path = _written(tmp_path)
    assert model_to_json(read_model(path)) == TABLE
    found = find_model(str(path))
    assert (found.parameters, found.forward_flop, found.sample) == (24, 136.5, "8 tokens")
    with pytest.raises(ValueError, match="tokens=9"):
        find_model(str(path), 9)
    assert found.buffers_bytes == 0


def test_a_table_may_have_buffers(tmp_path: Path) -> None:
    found = read_model(_written(tmp_path, buffers_bytes=50_331_648))
    assert found.buffers_bytes == 50_331_648
    assert model_to_json(found) == TABLE | {"buffers_bytes": 50_331_648}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "other"}, '"format" must be "longhaul-model"'),
        ({"version": 2}, "reads version 1"),
        ({"layer": []}, "did you mean layers?"),
        ({"sample": ""}, "sample=''"),
        ({"buffers_bytes": -1}, "buffers_bytes='-1': must be a whole number from 0"),
        ({"buffers_bytes": True}, "buffers_bytes='True': must be a whole number from 0"),
        ({"layers": []}, "at least one"),
        ({"layers": [["a", [[4, 0]], 1]]}, "layers: a: '[4, 0]' is no shape"),
        ({"layers": [["a", [[4]], -1]]}, "layers: a: '-1' are no FLOPs"),
        ({"layers": [["a", [[4]], 1], ["a", [[4]], 1]]}, "layers: a: is given twice"),
        ({"layers": [["a", [[4]], 0]]}, "none has FLOPs"),
        ({"layers": [["a", [], 1]]}, "have 0 elements"),
        ({"layers": [["a", [[4]]]]}, "layers[0]="),
    ],
)
def test_a_faulty_table_is_refused_with_the_layer(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_model(_written(tmp_path, **changes))
    assert any(said in fault for fault in error.value.faults), error.value.faults


def test_a_model_is_a_name_or_the_absolute_path_of_a_table() -> None:
    kind = ModelOrFile()
    assert kind.allows("resnet50")
    assert kind.allows("/data/mine.json")
    assert not kind.allows("mine.json")
    assert "$PWD/mine.json" in kind.wanted("folder/mine.json")
    assert "did you mean resnet50" in kind.wanted("resnet5O")
