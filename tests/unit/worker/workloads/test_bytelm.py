from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from testbed.worker.data.library_corpus import CONTEXT, corpus_faults, corpus_files, library, read_corpus, sequences
from testbed.worker.workloads.bytelm import Bytelm


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_corpus_is_the_library_without_tests_and_what_is_installed(tmp_path: Path) -> None:
    names = ["os.py", "json/decoder.py", "test/test_os.py", "site-packages/a.py", "dist-packages/b.py", "README"]
    folder = tree(tmp_path, dict.fromkeys(names, "pass\n"))
    (folder / "sitecustomize.py").symlink_to(folder / "os.py")
    assert [str(path.relative_to(folder)) for path in corpus_files(folder)] == ["json/decoder.py", "os.py"]
    assert {"os.py", "argparse.py"} <= {path.name for path in corpus_files(library())}


def test_the_hash_tells_contents_and_names_apart(tmp_path: Path) -> None:
    files = {f"module{number}.py": f"value = {number}\n" for number in range(64)}
    first = read_corpus(tree(tmp_path / "a", files))
    assert read_corpus(tree(tmp_path / "b", files)).sha256 == first.sha256
    assert read_corpus(tree(tmp_path / "c", {**files, "module7.py": "value = 8\n"})).sha256 != first.sha256
    renamed = {name.replace("module7", "module70"): text for name, text in files.items()}
    assert read_corpus(tree(tmp_path / "d", renamed)).sha256 != first.sha256


def test_files_are_held_out_whole_and_by_name(tmp_path: Path) -> None:
    files = {f"module{number}.py": f"value = {number}\n" for number in range(64)}
    corpus = read_corpus(tree(tmp_path / "a", files))
    train, held_out = (bytes(part.tolist()).decode() for part in (corpus.train, corpus.held_out))
    for text in files.values():
        assert (text in train + "\n") != (text in held_out + "\n")
    fewer = {name: text for name, text in files.items() if name != "module0.py"}
    assert bytes(read_corpus(tree(tmp_path / "b", fewer)).held_out.tolist()).decode() in (
        held_out,
        held_out.replace("value = 0\n", "").strip("\n"),
    )


def test_a_machine_without_the_source_is_told_the_package(tmp_path: Path) -> None:
    (fault,) = corpus_faults(tree(tmp_path, {"os.py": "pass\n"}))
    package = f"libpython3.{sys.version_info.minor}-stdlib"
    assert str(tmp_path) in fault and "has 5 bytes" in fault and package in fault
    assert Bytelm().validate() == []


def test_the_spec_is_told_the_hash_and_samples_stand_for_all_of_the_text() -> None:
    corpus = read_corpus(library())
    assert Bytelm().data_hash() == corpus.sha256
    assert len(corpus.train) - CONTEXT - 1 <= Bytelm().samples() * CONTEXT < len(corpus.train)
    assert len(corpus.held_out) > 512 * CONTEXT


def test_a_sample_is_followed_by_the_next_one() -> None:
    corpus = read_corpus(library())
    chosen = sequences(corpus.train, torch.tensor([0, 1, Bytelm().samples() - 1]))
    assert chosen.shape == (3, CONTEXT + 1)
    assert chosen[0, -1] == chosen[1, 0]
    assert bytes(chosen[0].tolist()) == bytes(corpus.train[: CONTEXT + 1].tolist())


def test_a_global_batch_does_not_depend_on_the_number_of_workers() -> None:
    workload, whole = Bytelm(), Bytelm()
    last = workload.samples() // 64
    for step in (0, last, last + 1):
        parts = [workload.batch(step, rank=rank, world_size=4, batch_size=16, seed=7) for rank in range(4)]
        assert torch.equal(torch.cat(parts), whole.batch(step, rank=0, world_size=1, batch_size=64, seed=7))


def test_seeds_and_steps_give_other_batches() -> None:
    def batch(step: int, seed: int) -> list[int]:
        return Bytelm().batch(step, rank=0, world_size=1, batch_size=4, seed=seed).flatten().tolist()

    assert batch(0, 0) == batch(0, 0)
    assert batch(0, 0) != batch(1, 0)
    assert batch(0, 0) != batch(0, 1)


def test_the_model_follows_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = Bytelm().model(5)
    torch.manual_seed(2)
    second = Bytelm().model(5)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert sum(p.numel() for p in first.parameters()) == 668_800
    assert not list(first.buffers())
    assert not torch.equal(next(Bytelm().model(6).parameters()), next(first.parameters()))


def test_a_prediction_sees_nothing_of_what_comes_later() -> None:
    model = Bytelm().model(0)
    text = Bytelm().batch(0, rank=0, world_size=1, batch_size=2, seed=0)[:, :-1]
    changed = text.clone()
    changed[:, 40:] = (changed[:, 40:] + 1) % 256
    with torch.no_grad():
        before, after = model(text), model(changed)
    assert torch.equal(before[:, :40], after[:, :40])
    assert not torch.equal(before[:, 40], after[:, 40])


@pytest.mark.tier("all")
@pytest.mark.parametrize(("optimizer", "learning_rate"), [("adamw", 0.002), ("sgd", 0.1)])
def test_the_loss_falls_and_evaluation_changes_nothing(optimizer: str, learning_rate: float) -> None:
    workload = Bytelm(optimizer=optimizer, learning_rate=learning_rate)
    model = workload.model(0)
    stepper = workload.optimizer(model.parameters())
    state = torch.get_rng_state()
    start = workload.evaluate(model)
    losses = []
    for step in range(20):
        stepper.zero_grad()
        loss = workload.loss(model, workload.batch(step, rank=0, world_size=1, batch_size=16, seed=0))
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    assert losses[-1] < 0.75 * losses[0]
    before = [p.detach().clone() for p in model.parameters()]
    bits = workload.evaluate(model)
    assert 3 < bits < 0.8 * start
    assert workload.evaluate(model) == bits
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_parameters_out_of_range_are_refused_together() -> None:
    with pytest.raises(ValueError, match="learning_rate=True: must be above 0") as caught:
        Bytelm(learning_rate=True, optimizer="adam", momentum=1)
    assert "optimizer=adam: unknown; did you mean adamw? known: adamw, sgd" in str(caught.value)
    assert "momentum=1: must be in [0, 1)" in str(caught.value)


def test_an_uneven_model_has_blocks_as_wide_as_asked_for() -> None:
    model = Bytelm(widening=[1, 8]).model(0)
    assert [block.widen.out_features for block in model.blocks] == [128, 1024]
    text = torch.zeros(2, CONTEXT, dtype=torch.long)
    assert model(text).shape == (2, CONTEXT, 256)
    usual = sum(p.numel() for p in Bytelm().model(0).parameters())
    assert usual == sum(p.numel() for p in Bytelm(widening=(4, 4, 4)).model(0).parameters())


@pytest.mark.parametrize(
    ("widening", "said"),
    [
        ([], "must be a list of whole numbers"),
        ("44", "must be a list of whole numbers"),
        ([4, 0, 2.5], r"widening\[1\]=0[\s\S]*widening\[2\]=2.5"),
    ],
)
def test_blocks_that_cannot_be_are_refused(widening: list[int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Bytelm(widening=widening)
