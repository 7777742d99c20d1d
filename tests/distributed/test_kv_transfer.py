"""Keys and values far away, over real ranks: what is decoded is what one process decodes, and every byte is counted."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.core.errors import EXIT_FAILED
from testbed.worker.device.clock import PhaseClock
from testbed.worker.methods.kv_transfer.cache.messages import HEADER_BYTES
from testbed.worker.methods.kv_transfer.cache.store import LocalLink
from testbed.worker.methods.kv_transfer.connection import FRAME_BYTES, NEAR
from testbed.worker.methods.kv_transfer.model.texts import Sample
from testbed.worker.methods.kv_transfer.model.transformer import DenseCache, KVTransformer
from testbed.worker.methods.kv_transfer.roles import Decoded, Keeper, decode, decode_near
from testbed.worker.methods.kv_transfer.selection.methods import SELECTORS, Method
from testbed.worker.profile.step_times import measure
from tests.distributed.far_texts import SHAPE, FarTexts
from tests.distributed.harness import OnEvent, Workers, make_spec, run
from tests.distributed.trainings import Answers, Case, play

LENGTH, DECODED = 180, 70
TEXTS: dict[str, Any] = {"length": LENGTH, "decoded": DECODED, "needles": 3, "questions": 2}
FAR_TEXTS = {"_target_": "tests.distributed.far_texts.FarTexts", **TEXTS}
STEPS, BATCH, COMPARED = 2, 1, 2
RECENT, BLOCK = 32, 16
PARAMETERS: dict[str, dict[str, Any]] = {
    **{selector: {"selector": selector} for selector in SELECTORS},
    "exact": {"codec": "fp32"},
    "writes": {"codec": "fp32"},
    "all at once": {"selector": "infinigen", "reach": "all", "codec": "int8"},
    "once, cachegen": {"selector": "once", "codec": "cachegen"},
    "few": {"selector": "loki", "budget": 4, "rank": 2, "codec": "int4"},
}


def _given(name: str, **more: Any) -> dict[str, Any]:
    workload = FAR_TEXTS | {"writes": name == "writes"}
    strategy = PARAMETERS[name] | {"compared": COMPARED}
    shared = {"strategy": "kv_transfer", "workload": "recall", "workload_params": workload, "batch_size": BATCH}
    return {**shared, "strategy_params": strategy, **more}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    cases = [Case(name=name, spec=_given(name), end=STEPS) for name in PARAMETERS]
    return play(cases, 2, tmp_path_factory.mktemp("kv"))


def _samples(*, writes: bool = False) -> list[Sample]:
    workload = FarTexts(**TEXTS, writes=writes)
    batches = [workload.batch(step, rank=0, world_size=1, batch_size=BATCH, seed=0) for step in range(STEPS)]
    return [batch.sample(index) for batch in batches for index in range(BATCH)]


def _exact(sample: Sample) -> Decoded:
    model = FarTexts(**TEXTS).model(0)
    return decode(model, sample, lambda: DenseCache(model.prefill(torch.tensor(sample.text[: sample.prefill]))))


def _texts(answers: Answers, name: str) -> list[dict[str, Any]]:
    return [note for note in answers[NEAR][name]["notes"] if note["event"] == "kv_text"]


@pytest.mark.parametrize("name", ["exact", "writes"])
def test_what_is_decoded_with_everything_is_what_one_process_decodes(name: str, played: Answers) -> None:
    expected = [_exact(sample) for sample in _samples(writes=name == "writes")]
    notes = _texts(played, name)
    assert [note["found"] for note in notes] == [one.found for one in expected]
    assert [note["right"] for note in notes] == [one.right for one in expected]
    nats = [
        [value for one in expected[step * BATCH : (step + 1) * BATCH] for value in one.nats] for step in range(STEPS)
    ]
    losses = played[NEAR][name]["losses"]
    assert losses == pytest.approx([sum(some) / len(some) for some in nats], rel=1e-5)


@pytest.mark.parametrize("name", [*SELECTORS, "all at once", "once, cachegen", "few"])
def test_a_selector_does_over_a_line_what_it_does_in_one_process(name: str, played: Answers) -> None:
    given = dict(PARAMETERS[name])
    method = Method(given.pop("selector"), given.pop("codec", "fp16"), given)
    model, clock = FarTexts(**TEXTS).model(0), PhaseClock()
    for sample, note in zip(_samples(), _texts(played, name), strict=True):
        keeper, selector = Keeper(model, method, sample, clock, 1.0), method.new(model)
        link = LocalLink(keeper.store)
        found = decode_near(model, sample, selector, link, lambda keeper=keeper: keeper.set_up, clock, 1.0)
        assert note["found"] == found.decoded.found
        assert note["near_bytes"] == selector.near_bytes()
        assert note["set_up_bytes"] == len(keeper.set_up) == found.set_up_bytes
        traffic = link.traffic
        trips = traffic.round_trips + traffic.round_trips_ahead
        assert (note["round_trips"], note["round_trips_ahead"]) == (traffic.round_trips, traffic.round_trips_ahead)
        # each round trip is a frame of questions, with how many there are and a size before each, and one of answers
        answers = note["down_bytes"] - FRAME_BYTES - len(keeper.set_up) - trips * FRAME_BYTES
        assert 0 <= answers - traffic.answered_bytes == 4 * (_questions(name, trips))
        asked = note["up_bytes"] - 2 * (FRAME_BYTES + 1) - traffic.asked_bytes - traffic.told_bytes
        assert asked == trips * (FRAME_BYTES + 2) + 4 * _questions(name, trips) + _told(method) * (FRAME_BYTES + 1)


def _questions(name: str, trips: int) -> int:
    return trips * (SHAPE.layers if name == "all at once" else 1)


def _told(method: Method) -> int:
    """Messages of what has left the window and is not far yet: blocks that end after the beginning."""
    if method.selector == "once":
        return 0
    block = {"quest": 16, "shadowkv": 8}.get(method.selector, BLOCK)
    prefill, last = LENGTH - DECODED, LENGTH - 1
    far = (prefill - RECENT) // block * block
    ends = []
    while last - far >= RECENT + block:
        far += block
        ends.append(far)
    return SHAPE.layers * sum(end > prefill for end in ends)


def test_bytes_of_everything_are_those_of_all_that_is_far(played: Answers) -> None:
    """Counted from the layout of messages alone."""
    prefill, heads, width = LENGTH - DECODED, SHAPE.heads, SHAPE.head_width
    far = (prefill - RECENT) // BLOCK * BLOCK
    window, stored, up, down = prefill - far, prefill, 0, 0
    for _ in range(prefill, LENGTH - 1):
        up += SHAPE.layers * (FRAME_BYTES + 2 + 4 + HEADER_BYTES)
        down += SHAPE.layers * (FRAME_BYTES + 4 + 2 * heads * (4 + 2 * far * width))
        window += 1
        if window == RECENT + BLOCK:
            window, far = window - BLOCK, far + BLOCK
            if far > stored:
                up += SHAPE.layers * (FRAME_BYTES + 1 + HEADER_BYTES + 2 * heads * (4 + 2 * (far - stored) * width))
                stored = far
    for note in _texts(played, "dense"):
        assert note["up_bytes"] == up + 2 * (FRAME_BYTES + 1)
        assert note["down_bytes"] == down + FRAME_BYTES + note["set_up_bytes"]
    moved = [sum(note[way] for note in _texts(played, "dense")) for way in ("up_bytes", "down_bytes")]
    assert [answer["dense"]["sent"] for answer in played] == moved
    assert stored > prefill  # something was appended


def test_the_first_texts_are_compared_with_exact_attention(played: Answers) -> None:
    compared = {
        name: [note for note in played[NEAR][name]["notes"] if note["event"] == "kv_quality"] for name in PARAMETERS
    }
    assert all([note["text"] for note in notes] == list(range(COMPARED)) for notes in compared.values())
    assert all(note["token_match"] == 1.0 and note["relative_error"] < 1e-5 for note in compared["exact"])
    few, recent = (sum(note["mass_recall"] for note in compared[name]) for name in ("few", "recent"))
    dense = sum(note["mass_recall"] for note in compared["dense"])
    assert recent < few < 0.9 * dense
    assert not any(answer["notes"] for answer in played[1].values())


@pytest.mark.tier("test")
def test_a_run_tells_of_each_text_and_of_what_all_of_it_would_take(tmp_path: Path) -> None:
    steps, batch = 2, 2
    outcome = run(make_spec(**_given("sparq", steps=steps, batch_size=batch)), tmp_path)
    assert outcome.status == {0: 0, 1: 0}
    assert [note["text"] for note in outcome.of("kv_text", 0)] == list(range(steps * batch))
    assert len(outcome.of("kv_quality", 0)) == COMPARED and not outcome.of("kv_quality", 1)
    assert all(loss > 0 for loss in outcome.losses(0)) and outcome.losses(1) == [None] * steps
    assert [step["samples"] for step in outcome.of("step", 0)] == [batch] * steps
    assert [step["samples"] for step in outcome.of("step", 1)] == [0] * steps
    moved = [sum(note[way] for note in outcome.of("kv_text", 0)) for way in ("up_bytes", "down_bytes")]
    assert [sum(outcome.payloads(rank)) for rank in range(2)] == moved
    (model,) = outcome.of("model")
    per_position = 2 * 2 * SHAPE.layers * SHAPE.width
    assert model["dense_bytes_step"] == batch * per_position * sum(range(LENGTH - DECODED, LENGTH - 1))


@pytest.mark.parametrize(("rank", "said"), [(1, "which keeps keys and values"), (0, "which asks for keys and values")])
def test_a_side_that_dies_is_named_by_the_other(rank: int, said: str, tmp_path: Path) -> None:
    outcome = run(make_spec(**_given("quest", steps=2000)), tmp_path, on_event=_killed(rank), stops={rank: {2}})
    other = 1 - rank
    assert outcome.status == {rank: -signal.SIGKILL, other: EXIT_FAILED}
    (fault,) = outcome.of("fault")
    assert fault["rank"] == other and fault["message"].startswith(f"rank {other}: ")
    assert f"rank {rank}, {said}, failed in step " in fault["message"]


def _killed(rank: int) -> OnEvent:
    def on_event(event: dict[str, Any], workers: Workers) -> None:
        if event["event"] == "step" and event["step"] == 2 and event["rank"] == rank:
            workers[rank].send_signal(signal.SIGKILL)

    return on_event


@pytest.mark.parametrize("name", ["dense", "all at once"])
def test_a_rehearsal_measures_both_sides_and_sends_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()
    for side in ("prefill", "step"):
        method = getattr(KVTransformer, side)

        def counted(*given: Any, side: str = side, method: Callable[..., Any] = method, **how: Any) -> Any:
            calls[side] += 1
            return method(*given, **how)

        monkeypatch.setattr(KVTransformer, side, counted)
    profile = measure(make_spec(**_given(name)))
    work = {piece.name: piece for piece in profile.work}
    assert set(work) == {"prefill", "decode"}
    assert all(piece.seconds > 0 and piece.flop > 0 for piece in work.values())
    # all that is given at once, and what is decoded byte by byte; the first one comes of what is given
    assert [work[name].size for name in ("prefill", "decode")] == [LENGTH - DECODED, DECODED - 1]
    assert calls["prefill"] > 0 and calls["step"] >= (DECODED - 1) * calls["prefill"]
