"""A model in a file: what comes back, and what is refused."""

from __future__ import annotations

import hashlib
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from testbed.core.errors import InputError, RunError
from testbed.worker.methods.low_rank.adapters import adapted_layers
from testbed.worker.model import checkpoint
from testbed.worker.training.parts import build_parts, first_model
from tests.distributed.harness import make_spec, part


def _model(seed: int = 0, width: int = 6) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, 2))


def _kept(folder: Path, state: Any) -> str:
    path = folder / "model.pt"
    checkpoint.keep(state, path)
    return str(path)


def _equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_parameters_and_buffers_come_back_bit_for_bit(tmp_path: Path) -> None:
    model, other = _model(), _model(1)
    model(torch.randn(8, 4))  # which moves the buffers
    path = _kept(tmp_path, model.state_dict())
    found = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert checkpoint.checksum(path) == found
    checkpoint.load(other, path, found)
    assert _equal(other, model) and not _equal(other, _model())
    assert int(other[1].num_batches_tracked) == 1


def test_of_a_view_no_more_is_written_than_it_shows(tmp_path: Path) -> None:
    large = torch.zeros(1_000_000)
    path = _kept(tmp_path, {"a": large[:10]})
    assert Path(path).stat().st_size < 10_000


def test_what_does_not_fit_is_told_at_once_and_changes_nothing(tmp_path: Path) -> None:
    state = dict(_model(width=7).state_dict())
    del state["2.bias"], state["1.running_mean"]
    state |= {"3.weight": torch.zeros(2), "1.num_batches_tracked": torch.zeros(()), "2.weight": torch.zeros(2, 6)}
    state["2.weight"][1, 1] = float("nan")
    path, model = _kept(tmp_path, state), _model()
    with pytest.raises(InputError) as caught:
        checkpoint.load(model, path)
    faults = [fault.removeprefix(f"start_from={path}: ") for fault in caught.value.faults]
    assert set(faults) == {
        "it lacks 1.running_mean, 2.bias, which the model has",
        "it has 3.weight, which the model has not",
        "0.weight is float32 [7, 4], the model's is float32 [6, 4]",
        "0.bias is float32 [7], the model's is float32 [6]",
        "1.weight is float32 [7], the model's is float32 [6]",
        "1.bias is float32 [7], the model's is float32 [6]",
        "1.running_var is float32 [7], the model's is float32 [6]",
        "1.num_batches_tracked is float32 [], the model's is int64 []",
        "2.weight has numbers that are not finite",
    }
    assert _equal(model, _model())


class Trap:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("sprung"),))


def test_what_no_run_has_kept_is_refused_and_none_of_it_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "given.pt"
    files: list[Any] = [b"", b"words", pickle.dumps(Trap()), _model().state_dict(), {"tensors": {}}, [1], Trap()]
    files += [{"longhaul_model": 2, "tensors": {}}, {"longhaul_model": 1, "tensors": {"a": 1}}]
    for given in files:
        if isinstance(given, bytes):
            path.write_bytes(given)
        else:
            torch.save(given, path)
        for ask in (checkpoint.checksum, lambda path: checkpoint.load(_model(), path)):
            with pytest.raises(InputError, match=rf"start_from={path}: no model that a run has kept \(.*checkpoint="):
                ask(str(path))
    assert not (tmp_path / "sprung").exists()
    for missing in (tmp_path / "none.pt", tmp_path):
        with pytest.raises(InputError, match=f"start_from={missing}: (No such file|Is a directory)"):
            checkpoint.checksum(str(missing))


def test_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    path = _kept(tmp_path, _model().state_dict())
    before = checkpoint.checksum(path)
    _kept(tmp_path, _model(1).state_dict())
    with pytest.raises(
        InputError, match=f"it has changed: its SHA-256 was {before} and is {checkpoint.checksum(path)}"
    ):
        checkpoint.load(_model(), path, before)


def test_what_was_loaded_before_workers_are_forked_needs_no_file(tmp_path: Path) -> None:
    path, model = _kept(tmp_path, _model(1).state_dict()), _model()
    checkpoint.preload(path, checkpoint.checksum(path))
    sha256 = checkpoint.checksum(path)
    Path(path).unlink()
    checkpoint.load(model, path, sha256)
    assert _equal(model, _model(1))
    with pytest.raises(InputError, match="No such file"):
        checkpoint.load(model, path, "0" * 64)


def test_a_state_of_more_than_tensors_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="tensors alone can be kept, and extra is none"):
        _kept(tmp_path, {"a": torch.zeros(1), "extra": {"b": 1}})


def test_a_run_begins_with_the_kept_numbers_and_adapters_beside_them(tmp_path: Path) -> None:
    workload = build_parts(make_spec(workload="digits")).workload
    path = _kept(tmp_path, workload.model(4).state_dict())
    given = {"start_from": path, "start_hash": checkpoint.checksum(path), "workload": "digits"}
    plain = make_spec(**given)
    model, note = first_model(plain, build_parts(plain))
    assert note is None and _equal(model, workload.model(4))
    tuned = make_spec(**given, transform=part("transform", "lora"))
    adapted, note = first_model(tuned, build_parts(tuned))
    assert note is not None and note.parameters < note.parameters_before / 10
    for name, layer in adapted_layers(adapted).items():
        assert torch.equal(layer.base.weight, model.get_submodule(name).weight)
    assert torch.equal(adapted(torch.ones(1, 1, 8, 8)), model(torch.ones(1, 1, 8, 8)))


@pytest.mark.parametrize("how", ["packed", "twice"])
def test_an_archive_that_would_fill_the_memory_is_refused_before_it_is_read(tmp_path: Path, how: str) -> None:
    sound, path = Path(_kept(tmp_path, _model().state_dict())), tmp_path / "given.pt"
    with zipfile.ZipFile(sound) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for one in old.infolist():
            new.writestr(one.filename, old.read(one))
        if how == "packed":
            new.writestr("archive/data/99", bytes(30_000_000))
        else:  # both entries of the table name the same bytes
            new.compression = zipfile.ZIP_STORED
            new.writestr("archive/data/98", bytes(1_000_000))
            new.filelist.extend([new.filelist[-1]] * 20)
    with pytest.raises(InputError, match=r"no model that a run has kept .*of which [0-9]+ would come"):
        checkpoint.load(_model(), str(path))
