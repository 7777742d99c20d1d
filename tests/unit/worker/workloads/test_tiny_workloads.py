"""tiny_vit and tiny_bert: what they train on, what they begin with. What comes before is not trained here."""

from __future__ import annotations

import inspect

import pytest
import torch
import yaml

from testbed.orchestrator.machine.clone import CLONE
from testbed.worker.data.glyph_images import glyph_images
from testbed.worker.data.pretrained import glyph_encoder, source_encoder
from testbed.worker.data.pretrained.fine_tuned import FineTuned
from testbed.worker.data.pretrained.source_encoder import HIDDEN, KEYWORDS, LENGTH, middles, read_text, windows
from testbed.worker.interfaces.workload import parameters_crc32
from testbed.worker.interfaces.workload_capabilities import split, varies_samples
from testbed.worker.model.chain import Chain
from testbed.worker.workloads.tiny_bert import TinyBert
from testbed.worker.workloads.tiny_vit import TinyVit

BOTH = [pytest.param(TinyVit(pretrained=False), marks=pytest.mark.fonts), TinyBert(pretrained=False)]
PYTHON = (
    b"import os\n\n\ndef find(name, root):\n    if name in root and not root.empty:\n        return root[name]\n" * 40
)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def named(workload: FineTuned) -> str:
    return type(workload).__name__


@pytest.mark.parametrize("workload", BOTH, ids=named)
def test_the_model_is_a_chain_of_eight_layers_that_follows_from_the_seed(workload: FineTuned) -> None:
    torch.manual_seed(1)
    first = workload.model(5)
    torch.manual_seed(2)
    assert parameters_crc32(workload.model(5)) == parameters_crc32(first) != parameters_crc32(workload.model(6))
    assert isinstance(first, Chain) and len(first.layers) == 8 and not list(first.buffers())
    sizes = {TinyVit: 427_245, TinyBert: 535_135}
    assert sum(p.numel() for p in first.parameters()) == sizes[type(workload)]  # type: ignore[index]


@pytest.mark.parametrize(
    ("kind", "encoder"),
    [pytest.param(TinyVit, glyph_encoder, marks=pytest.mark.fonts), (TinyBert, source_encoder)],
    ids=["TinyVit", "TinyBert"],
)
def test_pretrained_weights_are_the_same_for_all_seeds_and_the_head_is_not(
    kind: type[FineTuned], encoder: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = kind(pretrained=False).model(77).state_dict()  # type: ignore[call-arg]
    weights = {name: value for name, value in drawn.items() if not name.startswith("readout.head.")}
    monkeypatch.setattr(encoder, "weights", lambda: weights)
    workload = kind()  # type: ignore[call-arg]
    one, other = workload.model(0).state_dict(), workload.model(1).state_dict()
    assert all(torch.equal(one[name], value) and torch.equal(other[name], value) for name, value in weights.items())
    assert not torch.equal(one["readout.head.weight"], other["readout.head.weight"])
    assert workload.data_hash() != kind(pretrained=False).data_hash()  # type: ignore[call-arg]


@pytest.mark.parametrize("workload", BOTH, ids=named)
def test_the_loss_falls_and_evaluation_changes_nothing(workload: FineTuned, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, labels = workload._test()
    monkeypatch.setattr(workload, "_test", lambda: (inputs[:200], labels[:200]))
    model = workload.model(0)
    optimizer = workload.optimizer(model.parameters())
    batch = workload.batch(0, rank=0, world_size=1, batch_size=32, seed=0)
    state = torch.get_rng_state()
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = workload.loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    before = parameters_crc32(model)
    accuracy = workload.evaluate(model)
    assert 0 <= accuracy <= 1 and workload.evaluate(model) == accuracy == round(accuracy * 200) / 200
    assert model.training and parameters_crc32(model) == before and torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("workload", BOTH, ids=named)
def test_batches_have_the_numbers_of_their_samples_and_labels_of_them(workload: FineTuned) -> None:
    whole = workload.batch(3, rank=0, world_size=1, batch_size=16, seed=7)
    parts = [workload.batch(3, rank=rank, world_size=2, batch_size=8, seed=7) for rank in range(2)]
    assert torch.equal(torch.cat([part.numbers for part in parts]), whole.numbers)
    assert torch.equal(workload.labels()[whole.numbers], whole.labels)
    again = workload.picked(whole.numbers)
    assert torch.equal(again.inputs, whole.inputs) and torch.equal(again.labels, whole.labels)
    halves = split(workload, whole, 2)
    assert torch.equal(halves[1].numbers, whole.numbers[8:]) and len(halves[0].inputs) == 8
    with torch.no_grad():
        model = workload.model(0)
        torch.testing.assert_close(workload.sample_losses(model, whole).mean(), workload.loss(model, whole))


@pytest.mark.fonts
def test_images_that_are_shifted_depend_on_the_step_and_not_on_who_draws_them() -> None:
    workload, plain = TinyVit(pretrained=False, augment=3), TinyVit(pretrained=False)
    assert varies_samples(workload) and not varies_samples(plain)

    def inputs(of: TinyVit, step: int, rank: int = 0, world_size: int = 1) -> torch.Tensor:
        return of.batch(step, rank=rank, world_size=world_size, batch_size=16 // world_size, seed=1).inputs

    whole = inputs(workload, 0)
    assert torch.equal(torch.cat([inputs(workload, 0, rank, 2) for rank in range(2)]), whole)
    assert not torch.equal(whole, inputs(plain, 0))
    epoch = workload.samples() // 16
    numbers = [plain.batch(step, rank=0, world_size=1, batch_size=16, seed=1).numbers for step in (0, epoch)]
    assert not torch.equal(numbers[0], numbers[1])
    # of a shift by some pixels the middle is found again
    still = inputs(plain, 0)
    for image, moved in zip(still[:, 0], whole[:, 0], strict=True):
        inside = image[8:24, 8:24]
        assert any(
            torch.equal(moved[8 + down : 24 + down, 8 + right : 24 + right], inside)
            for down in range(-3, 4)
            for right in range(-3, 4)
        )


@pytest.mark.fonts
def test_images_before_and_after_are_not_the_same_ones() -> None:
    assert TinyVit().samples() == 3_200 < glyph_encoder.SET_APART
    assert len(TinyVit()._test()[1]) == 10_000 == len(glyph_images().test[1])
    assert TinyVit().validate() == []


# tokens


def test_tokens_are_frequent_words_and_bytes_and_give_the_text_again() -> None:
    # of these names one is held out
    files = {f"module{number}.py": PYTHON + b"rare%d = 1\n" % number for number in range(24)}
    text = read_text(files)
    words = source_encoder._words(b"\n".join(files.values()))
    spelt = {token: word for word, token in words.items()} | {byte: bytes([byte]) for byte in range(256)}
    everything = b"".join(spelt[int(token)] for part in (text.train, text.held_out) for token in part)
    assert sorted(everything.replace(b"\n", b"")) == sorted(b"".join(files.values()).replace(b"\n", b""))
    assert len(text.held_out) > 0 and len(text.train) > len(text.held_out)
    assert words[b" name"] > HIDDEN and b"n" not in words
    assert read_text(dict(reversed(files.items()))).sha256 == text.sha256
    assert read_text(files | {"module1.py": PYTHON}).sha256 != text.sha256


def test_a_keyword_is_in_the_middle_of_its_sample() -> None:
    text = read_text({f"module{number}.py": PYTHON for number in range(24)})
    at = middles(text.train, text.classes, 50, seed=1)
    found = windows(text.train, at)
    assert found.shape == (50, LENGTH) and len(set(at.tolist())) == 50
    names = {KEYWORDS[index] for index in text.classes[found[:, LENGTH // 2]].tolist()}
    assert names <= {"import", "def", "if", "in", "and", "not", "return"} and len(names) > 3


def test_what_is_asked_for_is_hidden_and_classes_are_many() -> None:
    for inputs, labels in (TinyBert()._training(), TinyBert()._test()):
        assert (inputs[:, LENGTH // 2] == HIDDEN).all() and not (inputs == HIDDEN)[:, : LENGTH // 2].any()
        counts = labels.bincount(minlength=len(KEYWORDS))
        assert len(counts) == len(KEYWORDS) and counts.max() < 0.3 * len(labels) and (counts > 0).sum() > 20
    assert len(TinyBert()._test()[1]) == 4_000
    assert TinyBert().validate() == []


# parameters


@pytest.mark.parametrize("kind", [TinyVit, TinyBert])
def test_the_yaml_has_the_defaults_and_bad_ones_are_refused_together(kind: type[FineTuned]) -> None:
    name = {"TinyVit": "tiny_vit", "TinyBert": "tiny_bert"}[kind.__name__]
    given = yaml.safe_load((CLONE / "experiments" / "conf" / "workload" / f"{name}.yaml").read_text())
    later = ("partition", "schedule", "warm_up_steps")  # not in the file, or specs of recorded runs would change
    defaults = {key: one.default for key, one in inspect.signature(kind).parameters.items() if key not in later}
    assert {key: value for key, value in given.items() if key not in ("_target_", "run")} == defaults
    wrong = {"augment": 9} if kind is TinyVit else {}
    with pytest.raises(ValueError, match="learning_rate=0: must be above 0") as caught:
        kind(learning_rate=0, optimizer="adam", momentum=1, pretrained="yes", **wrong)  # type: ignore[call-arg]
    for line in ("optimizer=adam: unknown", "momentum=1: must be in", "pretrained=yes: must be true or false"):
        assert line in str(caught.value)
    assert ("augment=9: must be" in str(caught.value)) == bool(wrong)
