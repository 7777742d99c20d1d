"""Buffered asynchronous rounds: who is given what, how late updates count, and who is out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from testbed.core.device.profile import Profile
from testbed.core.errors import RunError
from testbed.worker.device.clock import PhaseClock
from testbed.worker.device.compute_times import ComputeTimes
from testbed.worker.methods.federated.aggregation.state import AssignedState
from testbed.worker.methods.federated.clients.slowness import Slowness
from testbed.worker.methods.federated.dispatch import Dispatch
from testbed.worker.methods.parameter_server.messages.coder import Coder
from testbed.worker.methods.parameter_server.messages.entries import Encoded
from testbed.worker.methods.parameter_server.messages.wire import Facts
from testbed.worker.methods.parameter_server.transport.connection import Gone
from testbed.worker.methods.parameter_server.transport.frames import Kind
from tests.unit.worker.buffered_net import BATCH, Worker, buffered, largest_difference, local, plain, population
from tests.unit.worker.server_net import GARBAGE
from tests.unit.worker.server_rounds import Small


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _out(worker: Worker) -> str:
    """What it is told when it waits for a model."""
    with pytest.raises(Gone) as caught:
        worker.receive()
    return str(caught.value)


def test_clients_are_drawn_among_those_that_nobody_runs_and_by_the_seed() -> None:
    def given(seed: int) -> list[tuple[int, int]]:
        dispatch, found = Dispatch(4, seed), []
        for turn in range(60):
            worker = turn % 3
            if worker in dispatch.tasks:
                dispatch.take(worker)
            task = dispatch.give(worker, turn)
            assert task.client not in {one.client for other, one in dispatch.tasks.items() if other != worker}
            assert task.version == turn
            found.append((task.client, task.run))
        return found

    first = given(0)
    assert first == given(0) != given(1)
    for client in range(4):
        runs = [run for one, run in first if one == client]
        assert runs == list(range(len(runs))) and len(runs) > 5
    dispatch = Dispatch(1, 0)
    dispatch.give(0, 0)
    with pytest.raises(ValueError, match="worker 0 runs client 0 already"):
        dispatch.give(0, 0)
    with pytest.raises(ValueError, match="clients=1: workers run all of them already"):
        dispatch.give(1, 0)


def test_a_client_lasts_as_long_as_its_worker_and_the_run_make_it() -> None:
    """Paced, and with a clock that goes by this machine: then what is more than its training is waited for."""
    slowness, state = Slowness(sigma=1.0), AssignedState(Small())
    factors = [slowness.factor(2, run) for run in range(20)]
    runs = [factors.index(max(factors)), factors.index(1.0)]
    seconds = {"forward_s": 1e-4, "backward_s": 1e-4, "optimizer_s": 1e-4}
    profile = Profile(workload="", compressor="", batch_size=BATCH, layers=(), **seconds)
    paced = local(state, slowness, PhaseClock(times=ComputeTimes(profile)), speed=0.5)
    for run in runs:
        batches = 2 * population().samples(2) / BATCH
        assert paced.train(2, run).elapsed_s == pytest.approx(batches * 3e-4 * factors[run] / 0.5)
    native = local(state, slowness)
    for run in runs:
        begun_s = time.monotonic()
        elapsed_s = native.train(2, run).elapsed_s
        assert 0 < elapsed_s <= time.monotonic() - begun_s


def test_updates_count_by_their_staleness_and_nobody_waits() -> None:
    """Worker 0 sends three times while worker 1 trains: both updates of the first version are its own."""
    with buffered(versions=3, size=2) as played:
        fast, slow = played.workers
        assert (fast.receive(), slow.receive()) == (0, 0)
        started = slow.train()
        mine = [fast.turn(), fast.turn()]
        assert fast.version == 1, "at once, without the other"
        mine.append(fast.turn())
        slow.send()
        assert slow.receive() == 2
        mine += [fast.turn(), slow.turn()]  # of versions 1 and 2
        assert slow.version == 3
        fast.advance(3)
        *notes, last = played.ended()
    assert played.error is None
    late = 1 / math.sqrt(2)
    pairs = [((mine[0], 1.0), (mine[1], 1.0)), ((mine[2], 1.0), (started, late)), ((mine[3], late), (mine[4], 1.0))]
    value = played.versions[0]
    for ((ours, factor), (theirs, other)), found in zip(pairs, played.versions[1:], strict=True):
        moved = [one + (factor * a + other * b) / 2 for one, a, b in zip(value, ours, theirs, strict=True)]
        assert largest_difference(found, moved) < 1e-6 < 0.01 * largest_difference(found, value)
        value = moved
    assert [(note["version"], note["staleness_mean"], note["staleness_max"]) for note in notes] == [
        (1, 0.0, 0),
        (2, 0.5, 1),
        (3, 0.5, 1),
    ]
    assert all(note["workers"] == 2 and not note["left"] for note in notes)
    assert notes[0]["update_bytes"] == notes[2]["update_bytes"] and notes[0]["longest_client_s"] > 0
    assert (last["event"], last["round"], last["left"]) == ("last_model", 3, {})


def test_all_end_with_the_last_version_whoever_was_still_training() -> None:
    with buffered(versions=2, size=1) as played:
        fast, slow = played.workers
        slow.receive()
        assert fast.advance(2)[1] > 0
        assert fast.version == 2
        assert slow.advance(1)[1] > 0
        assert slow.version == 2 and slow.state.owned(1) == []
        assert slow.advance(2) == (None, 0), "it was told two versions at once"
        played.ended()
    for worker in played.workers:
        assert largest_difference(list(worker.state.learning), played.versions[-1]) == 0
        assert all(map(torch.equal, worker.state.model.buffers(), played.state.model.buffers()))


def test_one_worker_and_a_buffer_of_one_is_plain_training_of_the_same_clients() -> None:
    with buffered(versions=6, workers=1, size=1) as played:
        (worker,) = played.workers
        tasks, losses = [], []
        worker.receive()
        for version in range(6):
            tasks.append((int(worker.state.task[0]), worker.state.run))
            losses.append(worker.advance(version + 1)[0])
        notes = played.ended()[:-1]
    assert [note["clients"] for note in notes] == [[client] for client, _ in tasks]
    assert [note["train_loss"] for note in notes] == losses
    assert all(note["staleness_max"] == 0 for note in notes)
    model = Small()
    plain(model, tasks)
    assert largest_difference(list(model.parameters()), played.versions[-1]) < 1e-5
    assert largest_difference(played.versions[0], played.versions[-1]) > 0.1
    for ours, theirs in zip(played.state.model.buffers(), model.buffers(), strict=True):
        assert torch.allclose(ours.double(), theirs.double(), atol=1e-5)


def _nan(worker: Worker) -> None:
    """An update with NaN in it, in frames of its own making."""
    schema, plan = worker.wire.schema, worker.client._up.plan
    zeros = schema.delta(schema.take(worker.state), schema.take(worker.state))
    origin = worker.wire.origin(worker.client.number, 0)
    encoded = Coder(schema, plan).encode(zeros, None, bounds=None, origin=origin)
    place = next(index for index, item in enumerate(schema.items) if item.name == "model.linear.weight")
    encoded.entries[place].payload.fill_(255)
    facts = Facts(samples=worker.sequence.samples)
    pieces = worker.wire.pack(Kind.UPDATE, worker.client.number, 0, Encoded(encoded.entries, None, []), facts)
    worker.link.socket.sendall(b"".join(pieces))


def _other_round(worker: Worker) -> None:
    worker.version = 1
    worker.send()


def _other_run(worker: Worker) -> None:
    worker.state.task[1] += 1
    worker.send()


def _no_time(worker: Worker) -> None:
    worker.state.elapsed_s.zero_()
    worker.send()


def _other_samples(worker: Worker) -> None:
    worker.sequence._reports *= 2
    worker.send()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda worker: worker.link.socket.sendall(GARBAGE), "refused (magic)"),
        (_nan, "model.linear.weight: holds NaN or infinity"),
        (_other_round, "refused (round): what was sent is of round 1; this is round 0"),
        (_other_run, "refused (number): what was sent says client and run"),
        (_no_time, "says 0.0 s of training"),
        (_other_samples, "samples; it must be"),
    ],
    ids=["garbage", "nan", "round", "run", "time", "samples"],
)
def test_who_sends_what_cannot_be_used_is_out_and_the_others_go_on(spoil: Callable[[Worker], Any], why: str) -> None:
    with buffered(versions=2, size=2) as played:
        good, bad = played.workers
        good.receive()
        bad.receive()
        bad.train()
        spoil(bad)
        assert "closed: " in _out(bad)
        good.advance(2)
        notes = played.ended()
    assert played.error is None and [note["workers"] for note in notes[:-1]] == [1, 1]
    assert list(notes[-1]["left"]) == ["1"] and why in notes[-1]["left"]["1"]


def test_without_any_worker_it_fails_and_says_why_of_each() -> None:
    with buffered(versions=2) as played:
        first, second = played.workers
        first.receive()
        first.close()
        second.receive()
        second.train()
        _other_round(second)
        played.ended()
    assert isinstance(played.error, RunError)
    told = str(played.error)
    assert "no client is left" in told and "client 0: connection of client 0 is over" in told
    assert "client 1: refused (round)" in told


def test_who_dies_frees_its_client_and_may_come_back() -> None:
    """All five clients but the dead one's could be run by the other; that one's comes up again, too."""
    with buffered(versions=40, size=1) as played:
        fast = played.workers[0]
        fast.receive()
        played.workers[1].receive()
        played.workers[1].close()
        lost = int(played.workers[1].state.task[0])
        for version in range(1, 31):
            fast.advance(version)
        played.workers[1] = played.come(1)
        fast.advance(31)
        fast.advance(32)
        back = played.workers[1]
        assert back.receive() >= 30, "with the version of when it was let in, which may be before the next update"
        version, has = back.version or 0, [one.detach().clone() for one in back.state.learning]
        assert back.state.owned(1) != fast.state.owned(0)
        for _ in range(40 - 32):
            back.turn()
        fast.advance(40)
        notes = played.ended()[:-1]
    assert played.error is None
    assert largest_difference(has, played.versions[version]) == 0
    assert [note["workers"] for note in notes if note["version"] in (30, 40)] == [1, 2]
    assert list(notes[29]["left"]) == ["1"] and not notes[-1]["left"]
    assert any(note["clients"] == [lost] for note in notes[1:30])


def test_updates_go_through_compressors_with_what_they_have_lost_before() -> None:
    """Top-k with feedback: what is left out comes with a later update, of another client of the same worker."""
    for codec in ("topk", "fp16", "zstd"):
        with buffered(versions=3, workers=1, size=1, up={"codec": codec, "cutoff": 100}) as played:
            (worker,) = played.workers
            worker.advance(3)
            notes = played.ended()[:-1]
        raw = sum(4 * one.numel() for one in played.state.learning)
        assert played.error is None and largest_difference(played.versions[0], played.versions[-1]) > 0
        assert notes[-1]["update_bytes"] < {"topk": 0.3, "fp16": 0.6, "zstd": 1.05}[codec] * raw
        assert notes[-1]["model_bytes"] > raw
        residuals = worker.client._up.residuals
        assert (residuals is not None) == (codec == "topk")
        assert residuals is None or any(float(one.abs().max()) > 0 for one in residuals.state_dict().values())
