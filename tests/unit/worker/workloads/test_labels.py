"""Labels of samples, by which clients are given unlike data."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest
import torch

from testbed.core.errors import InputError
from testbed.worker import workloads
from testbed.worker.data.library_corpus import CONTEXT, library, read_corpus
from testbed.worker.interfaces.numbered_workload import NumberedWorkload
from testbed.worker.interfaces.workload import Workload
from testbed.worker.interfaces.workload_capabilities import LABELLED, Labelled, is_labelled, labels_of
from testbed.worker.workloads.blocks import Blocks
from testbed.worker.workloads.bytelm import Bytelm
from testbed.worker.workloads.digits import Digits
from testbed.worker.workloads.glyphs import Glyphs
from testbed.worker.workloads.replay import Replay
from testbed.worker.workloads.sensors import Sensors

OF_FONTS = pytest.param(Glyphs(), marks=pytest.mark.fonts)


def test_those_that_are_said_to_have_labels_have_them() -> None:
    named = {}
    for module in pkgutil.iter_modules(workloads.__path__):
        found = importlib.import_module(f"{workloads.__name__}.{module.name}")
        for kind in vars(found).values():
            if inspect.isclass(kind) and issubclass(kind, Workload) and kind.__module__ == found.__name__:
                named[module.name] = kind
    assert tuple(sorted(name for name, kind in named.items() if issubclass(kind, Labelled))) == LABELLED
    for kind in named.values():
        # a sample of a label is drawn by its number
        assert issubclass(kind, NumberedWorkload) or not issubclass(kind, Labelled)


def test_a_workload_without_labels_says_which_have_some() -> None:
    with pytest.raises(InputError) as caught:
        labels_of(Replay(model="resnet18"))
    (fault,) = caught.value.faults
    assert fault.startswith("Replay was asked for the labels of its samples")
    assert ", ".join(LABELLED) in fault and "`labels`" in fault


def test_an_attribute_of_that_name_is_no_method() -> None:
    workload = Replay(model="resnet18")
    workload.labels = torch.zeros(3)  # type: ignore[attr-defined]
    assert not is_labelled(workload)


@pytest.mark.parametrize("workload", [Digits(), OF_FONTS], ids=["digits", "glyphs"])
def test_labels_of_images_are_what_is_to_be_found(workload: NumberedWorkload) -> None:
    labels = workload.labels()
    assert labels.dtype == torch.int64 and labels.shape == (workload.samples(),)
    chosen = torch.tensor([workload.samples() - 1, 0, 5, 5])
    assert torch.equal(workload.picked(chosen)[1], labels[chosen])
    workload.hold_out(100, seed=0)
    assert torch.equal(workload.labels(), labels)


def test_labels_of_text_are_the_files_that_samples_begin_in() -> None:
    labels = Bytelm().labels()
    assert labels.dtype == torch.int64 and labels.shape == (Bytelm().samples(),)
    assert labels[0] == 0 and (labels.diff() >= 0).all()
    text = bytes(read_corpus(library()).train.tolist())
    argparse = (library() / "argparse.py").read_bytes()
    start = text.index(argparse)
    inside = range(-(-start // CONTEXT), (start + len(argparse)) // CONTEXT + 1)
    (label,) = labels[inside.start : inside.stop].unique().tolist()
    assert (labels == label).nonzero().flatten().tolist() == list(inside)


def test_of_files_shorter_than_a_sample_those_with_a_beginning_have_a_label(tmp_path: Path) -> None:
    for name, size in {"b.py": 63, "c.py": 1, "d.py": 99, "e.py": 63, "g.py": 300}.items():
        (tmp_path / name).write_bytes(b"#" * size)
    corpus = read_corpus(tmp_path)
    assert len(corpus.held_out) == 99, "d.py by its name's hash"
    # the first one's line end is byte 63; the second one is bytes 64 and 65, the third one 66 to 129
    assert corpus.files.tolist() == [0, 1, 2, 3, 3, 3]
    (tmp_path / "c.py").unlink()
    assert read_corpus(tmp_path).files.tolist() == [0, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    "workload", [Blocks(), Bytelm(), Digits(), OF_FONTS, Sensors()], ids=lambda one: type(one).__name__
)
def test_losses_of_samples_are_in_order_and_their_mean_is_the_loss(workload: NumberedWorkload) -> None:
    model, chosen = workload.model(0), torch.tensor([5, 0, 3])
    with torch.no_grad():
        each = workload.sample_losses(model, workload.picked(chosen))
        torch.testing.assert_close(each.mean(), workload.loss(model, workload.picked(chosen)))
        alone = [workload.loss(model, workload.picked(chosen[at : at + 1])) for at in range(3)]
    torch.testing.assert_close(each, torch.stack(alone))
