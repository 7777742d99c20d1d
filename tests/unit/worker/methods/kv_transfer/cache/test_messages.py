"""Questions to a store of keys and values, as bytes, and what it answers."""

from __future__ import annotations

import pytest
import torch

from compressors.base.payload import PayloadError
from testbed.worker.methods.kv_transfer.cache.kv_codecs import Floats, Kivi, Uniform
from testbed.worker.methods.kv_transfer.cache.messages import (
    HEADER_BYTES,
    Kind,
    Parts,
    Question,
    decode_blobs,
    decode_question,
    decode_tensors,
    encode_blobs,
    encode_tensors,
)
from testbed.worker.methods.kv_transfer.cache.store import Coding, KVStore, LocalLink, append_message

EXACT = Coding(Floats(bits=32), Floats(bits=32))


def _store(coding: Coding = EXACT) -> KVStore:
    """2 layers, 2 heads, 20 positions, 4 channels."""
    keys, values = torch.randn(2, 2, 2, 20, 4, generator=torch.Generator().manual_seed(0))
    return KVStore(keys, values, coding)


def _question(kind: Kind, *chosen: list[int], unit: int = 1, length: int = 18, parts: Parts = Parts.BOTH) -> Question:
    return Question(kind, 1, parts, 2, length, unit, tuple(torch.tensor(some, dtype=torch.long) for some in chosen))


def test_numbers_travel_in_the_shorter_form_and_come_back() -> None:
    few = Question(Kind.POSITIONS, 1, Parts.KEYS, 1, 1000, chosen=(torch.tensor([3, 999]),))
    many = few._replace(chosen=(torch.arange(0, 1000, 3),))
    far = few._replace(length=70_000, chosen=(torch.tensor([3, 69_999]),))
    sizes = [len(question.encode()) - HEADER_BYTES - 5 for question in (few, many, far)]
    assert HEADER_BYTES == 10 and sizes == [2 * 2, 125, 2 * 4]
    for question in (few, many, far, few._replace(chosen=(torch.tensor([], dtype=torch.long),))):
        found = decode_question(question.encode(), 4)
        assert found[:6] == question[:6] and torch.equal(found.chosen[0], question.chosen[0])


def test_a_unit_is_a_run_of_positions_that_may_be_short() -> None:
    question = _question(Kind.POSITIONS, [0, 2], [4], unit=4)
    assert [question.positions(head).tolist() for head in (0, 1)] == [[0, 1, 2, 3, 8, 9, 10, 11], [16, 17]]
    assert decode_question(question.encode(), 4).positions(1).tolist() == [16, 17]


def test_the_store_answers_each_kind_with_what_it_holds() -> None:
    store, floats = _store(), Floats(bits=32)
    keys, values = store.held(1, "keys"), store.held(1, "values")
    blobs = decode_blobs(store.answer(_question(Kind.POSITIONS, [0, 5], [], parts=Parts.VALUES).encode()), 2)
    assert torch.equal(floats.decode(blobs[0], 2, 4, "values"), values[0, [0, 5]]) and blobs[1] == b""
    blobs = decode_blobs(store.answer(_question(Kind.COMPONENTS, [1, 3], [0]).encode(channels=4)), 2)
    assert torch.equal(floats.decode(blobs[0], 18, 2, "keys"), keys[0][:18, [1, 3]])
    assert torch.equal(floats.decode(blobs[1], 18, 1, "keys"), keys[1, :18, :1])
    blobs = decode_blobs(store.answer(_question(Kind.EVERYTHING).encode()), 4)
    expected = [keys[0], values[0], keys[1], values[1]]
    assert all(torch.equal(floats.decode(blobs[i], 18, 4, "keys"), expected[i][:18]) for i in range(4))


def test_the_store_grows_by_what_is_appended_and_answers_of_it() -> None:
    store = _store()
    link = LocalLink(store)
    new = torch.randn(2, 2, 3, 4)
    message = append_message(1, 20, *new, EXACT)
    link.tell(message)
    assert torch.equal(store.held(1, "keys")[:, 20:], new[0]) and torch.equal(store.held(1, "values")[:, 20:], new[1])
    assert store.held(0, "keys").shape[1] == 20 and len(message) == HEADER_BYTES + 4 * (4 + 3 * 4 * 4)
    with pytest.raises(PayloadError, match="append: to 20 positions; 23 are here"):
        link.tell(message)
    ticket = link.send([_question(Kind.POSITIONS, [22], [21], length=23).encode()], ahead=True)
    (answer,) = link.receive(ticket)
    traffic = link.traffic
    assert (traffic.round_trips, traffic.round_trips_ahead, traffic.told_bytes) == (0, 1, 2 * len(message))
    assert (traffic.asked_bytes, traffic.answered_bytes) == (HEADER_BYTES + 2 * (5 + 2), len(answer))


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (_question(Kind.EVERYTHING, length=21), "21 positions; 20 are here"),
        (_question(Kind.EVERYTHING)._replace(layer=2), r"\(2, 2\); there are \(2, 2\)"),
        (_question(Kind.EVERYTHING)._replace(heads=3), r"\(1, 3\)"),
    ],
)
def test_what_is_not_here_is_refused(question: Question, told: str) -> None:
    with pytest.raises(PayloadError, match=told):
        _store().answer(question.encode())


def test_a_codec_that_needs_neighbours_answers_for_everything_alone() -> None:
    store = _store(Coding(rows=Kivi(group=4, residual=2)))
    assert len(decode_blobs(store.answer(_question(Kind.EVERYTHING).encode()), 4)) == 4
    with pytest.raises(PayloadError, match="Kivi carries no positions by themselves"):
        store.answer(_question(Kind.POSITIONS, [1], [2]).encode())
    assert _store(Coding(rows=Uniform(bits=4))).answer(_question(Kind.POSITIONS, [1], [2]).encode())


def test_damaged_questions_are_refused() -> None:
    message = _question(Kind.POSITIONS, [0, 5], [3], length=180).encode()
    unknown, backwards = bytes([9]) + message[1:], bytearray(message)
    backwards[HEADER_BYTES + 5 : HEADER_BYTES + 9] = bytes([5, 0, 5, 0])
    beyond = message[:-2] + bytes([180, 0])
    for damaged in (b"", message[:9], message[:-1], message + b"x", unknown, bytes(backwards), beyond):
        with pytest.raises(PayloadError, match="KV question"):
            decode_question(damaged, 4)
    for damaged in (b"x", encode_blobs([b"ab"])[:-1], encode_blobs([b"ab", b""])):
        with pytest.raises(PayloadError, match="KV message"):
            decode_blobs(damaged, 1)


def test_tensors_of_any_shape_travel_with_it() -> None:
    tensors = [torch.arange(6.0).view(1, 2, 3), torch.zeros(2, 0, 4), torch.tensor([1.5])]
    message = encode_tensors(tensors, Floats())
    found = decode_tensors(message, Floats())
    assert all(torch.equal(one, other) for one, other in zip(tensors, found, strict=True))
    assert len(message) == 4 + (4 + 13 + 4 + 12) + (4 + 13 + 4) + (4 + 5 + 4 + 2)
    for damaged in (b"", message[:-1], message + b"x", message[:8] + b"\x05" + message[9:]):
        with pytest.raises(PayloadError):
            decode_tensors(damaged, Floats())
