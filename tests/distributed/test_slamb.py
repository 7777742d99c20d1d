"""SLAMB and LAMB over real ranks: the papers' steps, held against one process, and the bytes of the closed forms."""

from __future__ import annotations

import copy
import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.run.dilation.first_guess import Load
from testbed.worker.communication.communicator import Communicator
from testbed.worker.methods.optimizers.sparse_momenta import Turns
from testbed.worker.profile.step_times import measure
from testbed.worker.training.loop import Training
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import make_spec, run
from tests.distributed.trainings import Answers, Case, parameters, play

RANKS, STEPS, SAMPLES = 3, 8, 12
DENSITY, TURNS, SYNC_EVERY, BETA3 = 0.25, 4, 3, 0.9
SMALL = {"_target_": "tests.distributed.small_model.SmallModel", "width": 101, "learning_rate": 0.05}
SPARSE = 96 * 101
"""Elements of the one tensor that takes turns; of 606 blocks, 152 have the first turn."""
FIRST_TURN = 16 * 152
TOTAL = 6 * 9 + 6 + SPARSE + 101 + 2 * 101 + 5 * 101 + 5
ALWAYS = TOTAL - SPARSE
FACTOR = 2 * (RANKS - 1) * 4
"""Bytes of all ranks for each element of an all-reduce."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _given(strategy: str, *, alike: bool = False, **params: Any) -> dict[str, Any]:
    return {
        "strategy": strategy,
        "batch_size": SAMPLES,
        "strategy_params": {"weight_decay": 0.02, **params},
        "workload_params": SMALL | {"alike": alike},
    }


SPARSELY = {"density": DENSITY, "sync_every": SYNC_EVERY, "beta3": BETA3}
DENSELY = {"density": 1.0, "sync_every": 1}
RARELY = {"density": DENSITY, "sync_every": 1000}
CASES = [
    Case(name="slamb", spec=_given("slamb", **SPARSELY), end=STEPS),
    Case(name="slamb by a ring", spec=_given("slamb", collective="ring", **SPARSELY), end=STEPS),
    Case(name="slamb until it averages", spec=_given("slamb", **SPARSELY), end=STEPS, finishes=False),
    Case(name="slamb, fp16", spec={"compressor": "fp16", **_given("slamb", **SPARSELY)}, end=STEPS),
    Case(name="one step, fp16", spec={"compressor": "fp16", **_given("slamb", **RARELY)}, end=1, finishes=False),
    Case(name="lamb, fp16", spec={"compressor": "fp16", **_given("lamb")}, end=STEPS),
    Case(name="lamb", spec=_given("lamb"), end=STEPS),
    Case(name="lamb, in parts", spec=_given("lamb", accumulate=3, clip_norm=1e6, bucket_size="8 KiB"), end=STEPS),
    Case(name="lamb, clipped", spec=_given("lamb", clip_norm=0.01, epsilon=0.1), end=STEPS),
    Case(name="densely", spec=_given("slamb", **DENSELY), end=STEPS),
    Case(name="lamb, alike", spec=_given("lamb", alike=True), end=STEPS),
    Case(name="densely, alike", spec=_given("slamb", alike=True, **DENSELY), end=STEPS),
    Case(name="one step", spec=_given("slamb", **RARELY), end=1, finishes=False),
    Case(name="one cycle", spec=_given("slamb", **RARELY), end=TURNS, finishes=False),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slamb")


@pytest.fixture(scope="module")
def answers(folder: Path) -> Answers:
    return play(CASES, RANKS, folder)


def _alone(strategy: str, ranks: int = 1, **given: Any) -> nn.Module:
    """The model after one process has trained it, on the batches of so many ranks."""
    asked = _given(strategy, **given)
    spec = make_spec(workers=1, **{**asked, "batch_size": ranks * SAMPLES})
    parts = build_parts(spec)
    training = Training(spec, parts, Communicator(0, 1, 10.0), lambda message: None)
    parts.strategy.bind(training.context)
    training.context.clock.restart(time.monotonic())
    for step in range(STEPS):
        batch = parts.workload.batch(step, rank=0, world_size=1, batch_size=spec.batch_size, seed=spec.seed)
        parts.strategy.step(batch, step)
    parts.strategy.finish()
    return training.model


def _flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().view(-1) for p in model.parameters()])


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


class _Reference:
    """SLAMB by masks of single elements and in double precision, all ranks in one process.

    Args:
        wire: As what a rank's part of the mean momentum travels.
    """

    def __init__(self, spec: RunSpec, wire: torch.dtype = torch.float64) -> None:
        self.wire = wire
        self.spec, self.workload, self.bounded = spec, build_parts(spec).workload, 0
        first = self.workload.model(spec.seed)
        self.models = [copy.deepcopy(first) for _ in range(RANKS)]
        self.m = [[torch.zeros_like(p).double() for p in first.parameters()] for _ in range(RANKS)]
        self.v = copy.deepcopy(self.m)
        generator = torch.Generator().manual_seed(spec.seed)
        self.turn_of: list[Tensor | None] = []
        """Of each element."""
        for p in first.parameters():
            takes_turns = p.numel() == SPARSE
            blocks = Turns(SPARSE, TURNS, generator).turn_of if takes_turns else None
            self.turn_of.append(None if blocks is None else blocks.repeat_interleave(16)[:SPARSE].view(p.shape))
        self.freshness = [torch.ones(p.shape, dtype=torch.float64) for p in first.parameters()]

    def step(self, step: int) -> list[float]:
        losses = []
        for rank, model in enumerate(self.models):
            batch = self.workload.batch(
                step, rank=rank, world_size=RANKS, batch_size=self.spec.batch_size, seed=self.spec.seed
            )
            model.zero_grad()
            loss = self.workload.loss(model, batch)
            loss.backward()
            losses.append(float(loss.detach()))
            for p, m, v in zip(model.parameters(), self.m[rank], self.v[rank], strict=True):
                assert p.grad is not None
                m.mul_(0.9).add_(0.1 * p.grad)
                v.mul_(0.999).add_(0.001 * p.grad.double() ** 2)
        for index, turn_of in enumerate(self.turn_of):
            mask = torch.ones_like(self.m[0][index]) == 1 if turn_of is None else turn_of == step % TURNS
            parts = [(self.m[rank][index] / RANKS).to(self.wire) for rank in range(RANKS)]
            mean = torch.stack(parts).double().sum(0)
            self.freshness[index] *= BETA3
            self.freshness[index][mask] = 1.0
            for rank, model in enumerate(self.models):
                self.m[rank][index][mask] = mean[mask]
                self._update(list(model.parameters())[index], rank, index, mask, step + 1)
        if (step + 1) % SYNC_EVERY == 0:
            self.average()
        return losses

    def average(self) -> None:
        mean = torch.stack([_flat(model) for model in self.models]).mean(0)
        for model in self.models:
            nn.utils.vector_to_parameters(mean.clone(), model.parameters())

    def _update(self, p: nn.Parameter, rank: int, index: int, mask: Tensor, t: int) -> None:
        w, rate = p.detach().double(), 0.05
        u = self.m[rank][index] / (1 - 0.9**t) / ((self.v[rank][index] / (1 - 0.999**t)).sqrt() + 1e-6)
        most = _longest(t)
        self.bounded += int((u.abs() > most).sum())
        u.clamp_(-most, most)
        if p.dim() == 1:
            p.data.copy_(w - rate * u)
            return
        u += 0.02 * w
        sent, rest = (_ratio(w[chosen], u[chosen]) for chosen in (mask, ~mask))
        fresh = self.freshness[index]
        rates = fresh * rate + (1 - fresh) * rate / math.sqrt(RANKS)
        p.data.copy_(w - rates * (fresh * sent + (1 - fresh) * rest) * u)


def _longest(t: int) -> float:
    """Of m / sqrt(v) after gradients that make it so: each beta1 / beta2 times the one after it."""
    gradients = [(0.9 / 0.999) ** (t - i) for i in range(1, t + 1)]
    m = sum(0.1 * 0.9 ** (t - i) * g for i, g in enumerate(gradients, 1)) / (1 - 0.9**t)
    v = sum(0.001 * 0.999 ** (t - i) * g * g for i, g in enumerate(gradients, 1)) / (1 - 0.999**t)
    return m / math.sqrt(v)


def _ratio(w: Tensor, u: Tensor) -> float:
    lengths = float(w.norm()), float(u.norm())
    return min(max(lengths[0] / lengths[1], 0.01), 1000.0) if min(lengths) > 0 else 1.0


def test_it_takes_the_steps_of_the_paper(answers: Answers, folder: Path) -> None:
    ours = _Reference(make_spec(workers=RANKS, **CASES[0].spec))
    for step in range(STEPS):
        losses = ours.step(step)
        for name in ("slamb", "slamb by a ring", "slamb until it averages"):
            assert [answer[name]["losses"][step] for answer in answers] == pytest.approx(losses, rel=1e-4)
    for rank, model in enumerate(ours.models):  # two steps after they were equal
        assert _apart(parameters(folder, "slamb until it averages", rank), _flat(model)) <= 1e-3
    assert _apart(_flat(ours.models[0]), _flat(ours.models[1])) >= 1e-2
    assert ours.bounded > 0
    ours.average()
    assert _apart(parameters(folder, "slamb"), _flat(ours.models[0])) <= 1e-3
    for name in ("slamb", "slamb by a ring"):
        assert len({answer[name]["crc32"] for answer in answers}) == 1


def test_momenta_in_float16_take_the_steps_of_momenta_that_were_rounded(answers: Answers, folder: Path) -> None:
    rounded = _Reference(make_spec(workers=RANKS, **CASES[0].spec), torch.float16)
    for step in range(STEPS):
        losses = rounded.step(step)
        assert [answer["slamb, fp16"]["losses"][step] for answer in answers] == pytest.approx(losses, rel=2e-3)
    rounded.average()
    found = parameters(folder, "slamb, fp16")
    # sums of a ring are rounded too, in its own order
    assert _apart(found, _flat(rounded.models[0])) <= 5e-3
    assert _apart(found, parameters(folder, "slamb")) > 1e-6, "it was rounded"
    assert len({answer["slamb, fp16"]["crc32"] for answer in answers}) == 1


def test_bytes_are_those_of_the_closed_form(answers: Answers) -> None:
    def sent(name: str) -> int:
        return sum(answer[name]["sent"] for answer in answers)

    assert sent("one step") == FACTOR * (ALWAYS + FIRST_TURN)
    cycle = TURNS * ALWAYS + SPARSE
    assert sent("one cycle") == FACTOR * cycle
    assert sent("slamb until it averages") == FACTOR * (2 * cycle + 2 * TOTAL)  # 8 steps, averages after 3 and 6
    assert sent("slamb") == FACTOR * (2 * cycle + 3 * TOTAL)  # and once more at the end
    assert sent("densely") == FACTOR * STEPS * 2 * TOTAL
    assert sent("lamb") == FACTOR * STEPS * TOTAL
    # as float16 momenta and gradients take half; parameters are averaged as they are
    assert sent("one step, fp16") == FACTOR * (ALWAYS + FIRST_TURN) // 2
    assert sent("slamb, fp16") == FACTOR * (cycle + 3 * TOTAL)
    assert sent("lamb, fp16") == FACTOR * STEPS * TOTAL // 2


def test_ranks_with_lamb_are_one_rank_with_all_their_batches(answers: Answers, folder: Path) -> None:
    single = _flat(_alone("lamb", RANKS))
    for name in ("lamb", "lamb, in parts"):
        assert len({answer[name]["crc32"] for answer in answers}) == 1
        assert _apart(parameters(folder, name), single) <= 1e-5
    # where epsilon is not small beside them, shorter gradients make shorter steps of vectors
    assert _apart(parameters(folder, "lamb, clipped"), _flat(_alone("lamb", RANKS, epsilon=0.1))) >= 1e-3
    clipped = _flat(_alone("lamb", RANKS, epsilon=0.1, clip_norm=0.01))
    assert _apart(parameters(folder, "lamb, clipped"), clipped) <= 1e-5


def test_with_all_momenta_and_equal_batches_it_is_lamb(answers: Answers, folder: Path) -> None:
    """One worker too; with batches of their own second moments are workers' own, and it is not."""
    assert _apart(parameters(folder, "densely, alike"), parameters(folder, "lamb, alike")) <= 1e-6
    assert _apart(_flat(_alone("slamb", **DENSELY)), _flat(_alone("lamb"))) <= 1e-6
    assert _apart(parameters(folder, "densely"), parameters(folder, "lamb")) >= 1e-2
    assert len({answer["densely"]["crc32"] for answer in answers}) == 1


def test_what_is_evaluated_changes_nothing_and_the_end_is_one_for_all(tmp_path: Path) -> None:
    params = {"density": 0.1, "sync_every": 4}
    asked = make_spec("slamb", "int8", workers=2, steps=10, evaluate_every=3, strategy_params=params)
    often = run(asked, tmp_path)
    assert set(often.status.values()) == {0}, often.of("fault")
    assert len({done["parameters_crc32"] for done in often.of("done")}) == 1
    assert often.losses(0)[-1] < 0.5 * often.losses(0)[0]
    (tmp_path / "seldom").mkdir()
    seldom = run(make_spec("slamb", "int8", workers=2, steps=10, strategy_params=params), tmp_path / "seldom")
    assert often.of("done")[0]["parameters_crc32"] == seldom.of("done")[0]["parameters_crc32"]
    (model,) = often.of("model")
    averages = [sum(often.payloads(rank)[step] for rank in range(2)) > model["dense_bytes_step"] for step in range(10)]
    assert averages == [step in (3, 7) for step in range(10)]
    assert sum(done["finish_payload_bytes"] for done in often.of("done")) == model["dense_bytes_step"]


def test_a_profile_has_what_a_step_sends_on_average() -> None:
    spec = make_spec(workers=RANKS, **_given("slamb", density=DENSITY, sync_every=50))
    cpu = measure(spec)
    assert [(one.kind, one.size_bytes, one.share) for one in cpu.collectives] == [
        ("all_reduce", 4 * (ALWAYS + FIRST_TURN), 1.0),
        ("all_reduce", 4 * TOTAL, 1 / 50),
    ]
    assert cpu.cycle_steps == 1
    assert cpu.optimizer_s > 0
    load = Load.of(spec, cpu, cpu, cores=2)
    alone = Load.of(spec, cpu.__class__(**{**vars(cpu), "collectives": cpu.collectives[:1]}), cpu, cores=2)
    messages_s = RANKS * 2 * (RANKS - 1) / 50 * 2e-4
    assert load.exchange.cpu_s - alone.exchange.cpu_s == pytest.approx(messages_s + FACTOR * TOTAL / 50 * 1.5e-9)
