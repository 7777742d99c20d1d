"""KV transfer as a run: methods by their names, frames between two ranks, texts, and the model that is kept."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from compressors.base.payload import PayloadError
from compressors.none import Uncompressed
from testbed.core.errors import InputError
from testbed.core.spec.run_spec import Part
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.pending import CollectiveError
from testbed.worker.methods.kv_transfer import record
from testbed.worker.methods.kv_transfer.cache.kv_codecs import Floats
from testbed.worker.methods.kv_transfer.cache.store import Coding, KVStore
from testbed.worker.methods.kv_transfer.connection import (
    BEGIN_FRAME,
    END_FRAME,
    FRAME_BYTES,
    CacheConnection,
    Request,
    RequestKind,
    decode_request,
    message_frame,
    questions_frame,
)
from testbed.worker.methods.kv_transfer.model import weights
from testbed.worker.methods.kv_transfer.model.needle import Stage, Task
from testbed.worker.methods.kv_transfer.model.texts import Sample
from testbed.worker.methods.kv_transfer.model.transformer import DenseCache, KVTransformer, Shape
from testbed.worker.methods.kv_transfer.quality import Decoder
from testbed.worker.methods.kv_transfer.roles import decode
from testbed.worker.methods.kv_transfer.selection import methods
from testbed.worker.methods.kv_transfer.selection.methods import CODECS, SELECTORS, WHOLE, Method, Once
from testbed.worker.strategies.kv_transfer import KVTransfer
from testbed.worker.training.parts import build_parts
from testbed.worker.workloads.recall import Recall
from tests.distributed.harness import CONF, make_spec
from tests.waiting import HANG_S, in_background, joined

SHAPE = Shape(layers=2, heads=2, head_width=8)
MODEL = KVTransformer(SHAPE, seed=1)
TEXT = torch.randint(128, (60,), generator=torch.Generator().manual_seed(3)).tolist()
EXACT = Coding(Floats(bits=32), Floats(bits=32))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("selector", SELECTORS)
def test_every_selector_is_made_by_its_name_with_each_of_its_parameters(selector: str) -> None:
    made = Method(selector, "fp16", {}).new(MODEL)
    assert type(made) is SELECTORS[selector]
    signature = inspect.signature(SELECTORS[selector].__init__).parameters
    given = {name: signature[name].default for name in methods.parameters(selector)}
    again = Method(selector, "int8", given).new(MODEL)
    assert type(again.coding.rows) is type(CODECS["int8"]()) and type(again.coding.others) is Floats


def test_a_strategy_and_its_configuration_know_the_parameters_of_all_selectors() -> None:
    settings = yaml.safe_load((CONF / "strategy" / "kv_transfer.yaml").read_text())
    settings.pop("_target_")
    known = {"selector", "codec", "compared"}.union(*map(methods.parameters, SELECTORS))
    assert set(settings) == set(inspect.signature(KVTransfer.__init__).parameters) - {"self"} == known


def test_all_that_is_wrong_with_a_method_is_told_at_once() -> None:
    with pytest.raises(
        ValueError, match=r"(?s)compared=-1: .*\nbudget=0: must be a whole number, at least 1, or null$"
    ):
        KVTransfer(selector="sparq", codec="kivi4", compared=-1, rank=8, budget=0, components=4)
    with pytest.raises(ValueError, match="rank=8") as caught:
        KVTransfer(selector="sparq", codec="kivi4", rank=8, components=4, sinks=33)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("rank=8: not known to selector=sparq, which has: components, budget, compensate, ")
    assert lines[1].startswith("sinks=33: must be a whole number, at least 0 and at most 32")
    assert lines[2].startswith("codec=kivi4: carries whole caches") and "use fp16, fp32, int8, int4" in lines[2]
    with pytest.raises(ValueError, match=r"(?s)selector=some: unknown; known: dense.*codec=gzip: unknown; known: fp16"):
        KVTransfer(selector="some", codec="gzip", rank=8)
    with pytest.raises(ValueError, match="budget=3: not known to selector=once, which has: none"):
        KVTransfer(selector="once", budget=3)


def test_codecs_of_whole_caches_serve_selectors_that_fetch_them() -> None:
    for codec in CODECS:
        for selector in WHOLE:
            assert Method(selector, codec, {}).new(MODEL)


def _faults(strategy: KVTransfer, workload: Any, world_size: int = 2) -> list[str]:
    return list(strategy.validate(Uncompressed(), workload, world_size))


def test_it_is_between_two_ranks_about_texts_and_without_a_compressor() -> None:
    assert _faults(KVTransfer(), Recall()) == []
    digits = build_parts(make_spec()).workload
    ranks, texts = _faults(KVTransfer(), digits, 3)
    assert "two ranks" in ranks and "there are 3; use workers=2" in ranks
    assert "Digits has no texts to decode; use workload=recall" in texts
    with pytest.raises(InputError, match="compressor=fp16: strategy=kv_transfer sends everything uncompressed"):
        build_parts(make_spec("kv_transfer", "fp16", workload="recall"))


def test_a_transform_of_a_model_that_stays_as_it_is_is_refused() -> None:
    settings = yaml.safe_load((CONF / "transform" / "pufferfish.yaml").read_text())
    transform = Part("pufferfish", settings.pop("_target_"), settings)
    with pytest.raises(InputError, match="transform=pufferfish: strategy=kv_transfer trains nothing"):
        build_parts(make_spec("kv_transfer", workload="recall", transform=transform))


def _once(message_of: Once, prefill: int) -> Decoder:
    prefilled = MODEL.prefill(torch.tensor(TEXT[:prefill]))
    return Decoder(MODEL, prefilled, lambda: message_of)


def test_moving_everything_once_is_exact_attention_without_a_round_trip() -> None:
    decoder = _once(Once(coding=EXACT), 40)
    dense = DenseCache(MODEL.prefill(torch.tensor(TEXT[:40])))
    for position in range(40, 59):
        exact = MODEL.step(TEXT[position], TEXT[position - 1], position, dense)
        torch.testing.assert_close(decoder.step(TEXT[position], TEXT[position - 1], position), exact)
    assert decoder.link.traffic.total_bytes == decoder.link.traffic.round_trips == 0
    numbers = 2 * SHAPE.layers * SHAPE.heads * 40 * SHAPE.head_width
    assert decoder.set_up_bytes == 8 + 2 * SHAPE.layers * SHAPE.heads * 4 + 4 * numbers


@pytest.mark.parametrize("cut", [0, 5, 8, 30, -1])
def test_a_damaged_set_up_of_everything_is_refused(cut: int) -> None:
    prefilled = MODEL.prefill(torch.tensor(TEXT))
    message = Once().set_up(KVStore(prefilled.keys, prefilled.values, Coding()))
    with pytest.raises(PayloadError):
        Once().start(message[:cut])


def test_frames_of_the_near_side_come_back_as_they_were() -> None:
    assert decode_request(BEGIN_FRAME) == Request(RequestKind.BEGIN, [])
    assert decode_request(END_FRAME) == Request(RequestKind.END, [])
    assert decode_request(message_frame(b"abc")) == Request(RequestKind.MESSAGE, [b"abc"])
    assert decode_request(questions_frame([b"", b"xy"])) == Request(RequestKind.QUESTIONS, [b"", b"xy"])
    assert len(questions_frame([b"", b"xy"])) == 2 + 4 + 4 + 2
    for broken in (b"", b"\x07", b"\x01", questions_frame([b"xy"])[:-1]):
        with pytest.raises(PayloadError):
            decode_request(broken)
    with pytest.raises(ValueError, match="256 questions"):
        questions_frame([b""] * 256)


Lines = Callable[..., tuple[CacheConnection, CacheConnection, list[Communicator]]]


@pytest.fixture(params=[1, 3], ids=["one connection", "three"])
def connections(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def lines(connections: int) -> Iterator[Lines]:
    """Makes both ends of a line, of which nothing is waited for longer than so many seconds."""
    made: list[CacheConnection] = []

    def make(timeout_s: float = HANG_S) -> tuple[CacheConnection, CacheConnection, list[Communicator]]:
        comms = [Communicator(rank, 2, timeout_s) for rank in range(2)]
        ends = zip(*(socket.socketpair() for _ in range(connections)), strict=True)
        near, far = (CacheConnection(end, comm) for end, comm in zip(ends, comms, strict=True))
        made.extend([near, far])
        return near, far, comms

    yield make
    for line in made:
        line.close()


def test_two_ends_that_send_much_at_once_do_not_wait_for_each_other(lines: Lines) -> None:
    near, far, comms = lines()
    frames = [bytes([rank]) * 5_000_000 for rank in range(2)]
    received: list[bytes] = []

    def both_ways() -> None:
        far.send(frames[1])
        received.append(far.receive())

    other = in_background(both_ways, "of the far end")
    near.send(frames[0])
    assert near.receive() == frames[1]
    joined(other)
    assert received == [frames[0]]
    whole = FRAME_BYTES + len(frames[0])
    assert [comm.payload_bytes for comm in comms] == [whole, whole]
    assert (near.sent_bytes, near.received_bytes, far.sent_bytes, far.received_bytes) == (whole,) * 4


def test_frames_that_come_together_are_told_apart(lines: Lines) -> None:
    near, far, _ = lines()
    for frame in (b"one", b"", b"three"):
        near.send(frame)
    assert [far.receive() for _ in range(3)] == [b"one", b"", b"three"]


def test_an_end_that_is_gone_or_silent_is_named(lines: Lines) -> None:
    near, far, comms = lines(0.2)
    comms[0].step = 7
    with pytest.raises(CollectiveError, match=r"rank 0: waiting for rank 1, which keeps .* in step 7.*nothing moved"):
        near.receive()
    far.close()
    with pytest.raises(CollectiveError, match=r"rank 0: waiting for rank 1, .*closed the connection"):
        near.receive()
    near, far, _ = lines()
    near.close()
    with pytest.raises(CollectiveError, match="rank 1: waiting for rank 0, which asks for keys and values"):
        far.receive()
    near, far, _ = lines()
    far.close()
    with pytest.raises(CollectiveError, match=r"rank 0: sending \d+ bytes to rank 1"):
        near.send(bytes(10_000_000))


def test_what_counts_is_text_and_answers() -> None:
    sample = Sample(text=[65, 66, 130, 200, 67, 131, 201], asked_at=[5], prefill=1, writes=True)
    assert list(sample.steps) == [1, 2, 3, 4, 5]
    assert [sample.counts(position) for position in range(1, 7)] == [True, False, False, True, False, True]
    assert [sample.is_written(position) for position in range(7)] == [False, False, True, True, True, False, False]
    assert not any(sample._replace(writes=False).is_written(position) for position in range(7))


def test_a_decoder_that_writes_generates() -> None:
    sample = Sample(text=[*TEXT[:40], *[0] * 12], asked_at=[], prefill=39, writes=True)
    cache = DenseCache(MODEL.prefill(torch.tensor(TEXT[:39])))
    written = decode(MODEL, sample, lambda: cache)
    other = DenseCache(MODEL.prefill(torch.tensor(TEXT[:39])))
    expected = TEXT[:40]
    for position in range(39, 51):
        byte, before = expected[position], expected[position - 1]
        expected.append(int(MODEL.step(byte, before, position, other).argmax()))
    assert written.text[40:] == written.found[:12] == expected[40:]
    given = decode(MODEL, sample._replace(writes=False), lambda: DenseCache(MODEL.prefill(torch.tensor(TEXT[:39]))))
    assert given.text == sample.text


def test_exact_attention_is_like_itself() -> None:
    sample = (
        Recall(length=120, decoded=20, needles=2, questions=2)
        .batch(0, rank=0, world_size=1, batch_size=1, seed=0)
        .sample(0)
    )
    note = record.quality_event(0, MODEL, Method("dense", "fp32", {}), sample)
    assert note.token_match == 1.0 and note.relative_error < 1e-6 and note.mass_recall > 0.9999
    worse = record.quality_event(0, MODEL, Method("recent", "fp16", {"recent": 8, "sinks": 0, "block": 4}), sample)
    assert worse.relative_error > 0.05 and worse.mass_recall < 0.9


def test_dense_bytes_are_those_of_all_earlier_positions() -> None:
    texts = Recall(length=120, decoded=20, needles=2, questions=2).batch(0, rank=0, world_size=1, batch_size=3, seed=0)
    keys_and_values = 2 * SHAPE.layers * SHAPE.heads * SHAPE.head_width
    assert record.dense_bytes(SHAPE, texts) == 3 * sum(2 * keys_and_values * position for position in range(100, 119))
    prefill, decoding = record.work_of(SHAPE, texts)
    assert (prefill.size, decoding.size) == (300, 57)
    assert prefill.flop > 3 * decoding.flop > 0


def test_texts_are_drawn_from_the_seed_and_not_from_how_many_ranks_there_are() -> None:
    workload = Recall(length=100, decoded=20, needles=4, questions=3)
    together = workload.batch(0, rank=0, world_size=1, batch_size=4, seed=5)
    apart = [workload.batch(0, rank=rank, world_size=2, batch_size=2, seed=5) for rank in range(2)]
    assert torch.equal(together.text, torch.cat([part.text for part in apart]))
    assert not torch.equal(together.text, workload.batch(0, rank=0, world_size=1, batch_size=4, seed=6).text)
    assert not torch.equal(together.text, workload.batch(1, rank=0, world_size=1, batch_size=4, seed=5).text)
    assert together.text.shape == (4, 100) and together.prefill.tolist() == [80] * 4
    assert together.asked_at.tolist() == [[94, 96, 98]] * 4


def test_a_loss_is_of_what_can_be_foretold() -> None:
    workload = Recall(length=60, decoded=10, needles=2, questions=2)
    batch = workload.batch(0, rank=0, world_size=1, batch_size=2, seed=0)
    nats = []
    for index in range(2):
        sample = batch.sample(index)
        logits = MODEL(batch.text[index : index + 1, :-1])[0].detach().log_softmax(-1)
        nats += [-float(logits[at - 1, sample.text[at]]) for at in range(1, 60) if sample.counts(at)]
    assert float(workload.loss(MODEL, batch).detach()) == pytest.approx(sum(nats) / len(nats), rel=1e-5)


def test_all_that_is_wrong_with_texts_is_told_at_once() -> None:
    with pytest.raises(ValueError, match="questions") as caught:
        Recall(length=10, decoded=16, needles=2, questions=3)
    assert [line.partition("=")[0] for line in str(caught.value).splitlines()] == ["questions", "decoded"]
    with pytest.raises(ValueError, match="length") as caught:
        Recall(length="long", needles=0, writes=1, model_seed=-1)  # type: ignore[arg-type]
    assert [line.partition("=")[0] for line in str(caught.value).splitlines()] == [
        *("length", "needles", "writes", "model_seed")
    ]
    with pytest.raises(ValueError, match="length=80: 60 needles and 1 questions take more"):
        Recall(length=80, decoded=20, needles=60, questions=1)


def test_a_model_is_trained_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(length=24, needles=2, questions=2)
    monkeypatch.setattr(weights, "SHAPE", Shape(layers=1, heads=1, head_width=8))
    monkeypatch.setattr(weights, "COURSE", (Stage(task=task, samples=2, steps=3, learning_rate=0.01),))
    first = weights.trained_model(0, tmp_path)
    (file,) = tmp_path.glob("*.npy")
    weights._weights.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(weights, "train", None)  # is not called
        again = weights.trained_model(0, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    fresh = KVTransformer(weights.SHAPE, seed=0)
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), fresh.parameters(), strict=True))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    weights._weights.cache_clear()
    repaired = weights.trained_model(0, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), repaired.parameters(), strict=True))
    other = weights.trained_model(1, tmp_path)
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))
    assert len(list(tmp_path.glob("*.npy"))) == 2
    weights._weights.cache_clear()
