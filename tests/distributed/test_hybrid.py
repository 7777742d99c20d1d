"""Plans of pipelines, replicas and shards over real ranks: gradients of one process, and every byte."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from testbed.core.errors import InputError
from testbed.worker.profile.step_times import measure
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import Workers, make_spec, run
from tests.distributed.trainings import Answers, Case, parameters, play

RANKS, STEPS = 8, 4
BYTELM = {"_target_": "testbed.worker.workloads.bytelm.Bytelm", "optimizer": "sgd", "momentum": 0.0}
ONCE = BYTELM | {"learning_rate": 1.0}
"""So that one step changes parameters by the gradient."""
FROZEN = ONCE | {"_target_": "tests.distributed.frozen_model.FrozenBytelm"}
ADAM = BYTELM | {"optimizer": "adamw", "learning_rate": 0.002}
DIGITS = {"_target_": "testbed.worker.workloads.digits.Digits", "learning_rate": 1.0, "momentum": 0.0}
ACTIVATIONS = 64 * 128
"""Values of a sample that stages of bytelm pass on."""
EMBEDDINGS, BLOCK, HEAD = (256 + 64) * 128, 198_272, 256 + 128 * 256
PIECES = [EMBEDDINGS, BLOCK, BLOCK, BLOCK, HEAD]
SHARED = BLOCK - 4 * 128 - 2 * 128
"""Of a block, what shards divide: norms and the biases after sums are alike."""
SZ3 = {"_target_": "compressors.sz3.SZ3", "error_bound": 0.01}
TOPK = {"_target_": "compressors.topk.TopK", "density": 0.25}
PLANS: dict[str, dict[str, Any]] = {
    "pp4 dp2": {"pp": 4},
    "pp4 dp2, gpipe": {"pp": 4, "schedule": "gpipe"},
    "pp2 dp4, inside, hierarchical": {"pp": 2, "placement": "inside", "collective": "hierarchical"},
    "pp2 dp4, uneven": {"pp": 2, "cuts": [0, 4], "micro_batch": 2, "schedule": "gpipe"},
    "pp2 dp2 tp2": {"pp": 2, "tp": 2, "bucket_size": "256 KiB"},
    "pp2 dp2 tp2, interleaved": {"pp": 2, "tp": 2, "schedule": "interleaved"},
    "pp2 dp4, interleaved unevenly": {"pp": 2, "schedule": "interleaved", "cuts": [0, 2, 3, 4]},
    "dp2 tp4": {"pp": 1, "tp": 4},
    "pp4 tp2": {"pp": 4, "tp": 2, "placement": [7, 6, 5, 4, 3, 2, 1, 0]},
}
CODECS: dict[str, Any] = {"fp16": "fp16", "int8": "int8", "topk": TOPK, "sz3": SZ3}


def _given(workload: dict[str, Any] = ONCE, strategy: str = "hybrid", **params: Any) -> dict[str, Any]:
    return {
        "strategy": strategy,
        "strategy_params": params,
        "workload_params": workload,
        "batch_size": 1,
        "regions": (4, 4),
    }


LORA = {"transform": {"name": "lora", "target": "testbed.worker.transforms.lora.LoRA", "params": {"rank": 4}}}
TO_THE_END = {"pp": 2, "tp": 2}
CASES = [
    *(Case(name=name, spec=_given(**params), end=1) for name, params in PLANS.items()),
    Case(name="frozen", spec=_given(FROZEN, pp=4), end=1),
    Case(name="frozen, shared", spec=_given(FROZEN, pp=2, tp=2), end=1),
    Case(name="digits", spec=_given(DIGITS, pp=4), end=1),
    *(Case(name=name, spec=_given(pp=4, activations=codec), end=1) for name, codec in CODECS.items()),
    Case(name="ddp", spec=_given(ADAM, "ddp"), end=STEPS),
    Case(name="adam", spec=_given(ADAM, **TO_THE_END), end=STEPS),
    Case(name="topk gradients", spec=_given(ADAM, pp=2, tp=2) | {"compressor": "topk"}, end=STEPS),
    Case(name="lora, ddp", spec=_given(ADAM, "ddp") | LORA, end=2),
    Case(name="lora", spec=_given(ADAM, pp=2) | LORA, end=2),
]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hybrid")


@pytest.fixture(scope="module")
def played(folder: Path) -> Answers:
    return play(CASES, RANKS, folder)


def _alone(workload: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor, float]:
    """One process with all samples: parameters, their gradient, which of them have none, and the loss."""
    spec = make_spec(workers=RANKS, **_given(workload, "ddp"))
    parts = build_parts(spec)
    model = parts.workload.model(spec.seed)
    batch = parts.workload.batch(0, rank=0, world_size=1, batch_size=RANKS * spec.batch_size, seed=spec.seed)
    loss = parts.workload.loss(model, batch)
    loss.backward()
    flat = nn.utils.parameters_to_vector
    gradient = flat([torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()])
    without = flat([torch.full_like(p, float(p.grad is None)) for p in model.parameters()]).bool()
    return flat(model.parameters()).detach(), gradient, without, float(loss.detach())


def _same_step(played: Answers, folder: Path, name: str, workload: dict[str, Any]) -> None:
    before, gradient, without, loss = _alone(workload)
    step = before - parameters(folder, name)
    assert float((step - gradient).norm() / gradient.norm()) < 1e-5
    assert not step[without].any(), "what has no gradient stays as it is"
    told = [answer[name]["losses"][0] for answer in played if answer[name]["losses"][0] is not None]
    assert sum(told) / len(told) == pytest.approx(loss, rel=1e-5)
    assert len({answer[name]["crc32"] for answer in played}) == 1


@pytest.mark.parametrize("name", PLANS)
def test_a_step_of_every_plan_is_that_of_one_process(name: str, played: Answers, folder: Path) -> None:
    _same_step(played, folder, name, ONCE)
    last = [answer[name]["losses"][0] is not None for answer in played]
    assert sum(last) == RANKS // PLANS[name]["pp"], "who has the last stage tells the loss"


def test_a_step_with_what_is_frozen_and_of_a_convolutional_network(played: Answers, folder: Path) -> None:
    _same_step(played, folder, "frozen", FROZEN)
    _same_step(played, folder, "frozen, shared", FROZEN)
    _same_step(played, folder, "digits", DIGITS)


def _sent(played: Answers, name: str) -> int:
    return sum(answer[name]["sent"] for answer in played)


def _whole(pieces: list[int], pp: int, dp: int, cuts: list[int]) -> int:
    """Of rings of replicas, stages but the first to rank 0, and all of it to all ranks."""
    stages = [sum(pieces[a:b]) for a, b in zip(cuts, [*cuts[1:], len(pieces)], strict=True)]
    own = sum(stages[0::pp])
    return 4 * (2 * (dp - 1) * sum(pieces) + sum(pieces) - own + (RANKS - 1) * sum(pieces))


def test_what_is_sent_is_activations_and_gradients_of_stages(played: Answers) -> None:
    passing = 2 * 4 * ACTIVATIONS * RANKS
    assert _sent(played, "pp4 dp2") == 3 * passing + _whole(PIECES, 4, 2, [0, 2, 3, 4])
    assert _sent(played, "pp4 dp2, gpipe") == _sent(played, "pp4 dp2")
    assert _sent(played, "pp2 dp4, uneven") == passing + _whole(PIECES, 2, 4, [0, 4])
    assert _sent(played, "pp2 dp4, interleaved unevenly") == 3 * passing + _whole(PIECES, 2, 4, [0, 2, 3, 4])


def test_a_frozen_prefix_gets_no_gradients(played: Answers) -> None:
    """Of three boundaries the first has nothing trained before it."""
    trained = [0, 0, BLOCK, BLOCK, HEAD]
    assert _sent(played, "frozen") == 5 * 4 * ACTIVATIONS * RANKS + _whole(trained, 4, 2, [0, 2, 3, 4])


def test_shards_sum_twice_a_block_each_way(played: Answers) -> None:
    """Each shard passes its own copy on; norms are averaged by each."""
    dp, tp = 2, 4
    total, alike = sum(PIECES), sum(PIECES) - 3 * SHARED
    sums = 3 * 4 * dp * (2 * (tp - 1) * 4 * ACTIVATIONS * (RANKS // dp))
    rings = 2 * (dp - 1) * 4 * (tp * alike + 3 * SHARED)
    gathered = 4 * 3 * SHARED * (tp - 1) // tp
    assert _sent(played, "dp2 tp4") == sums + rings + gathered + (RANKS - 1) * 4 * total


def test_codecs_shrink_what_passes_between_stages(played: Answers, folder: Path) -> None:
    messages, values = 3 * 2 * RANKS, ACTIVATIONS
    without = _sent(played, "pp4 dp2") - messages * 4 * values
    assert _sent(played, "fp16") - without == messages * 2 * values
    assert _sent(played, "int8") - without == messages * (values + 4 * values // 256)
    assert _sent(played, "topk") - without == messages * 8 * math.ceil(values / 4)
    assert 0 < _sent(played, "sz3") - without < messages * 4 * values
    before, gradient, _, _ = _alone(ONCE)
    for name, least in {"fp16": 0.999, "int8": 0.99, "sz3": 0.99, "topk": 0.2}.items():
        step = before - parameters(folder, name)
        assert float(nn.functional.cosine_similarity(step, gradient, dim=0)) > least, name
        assert len({answer[name]["crc32"] for answer in played}) == 1


def test_training_goes_as_that_of_ddp_and_goes_on_from_a_checkpoint(played: Answers, folder: Path) -> None:
    losses = [answer["ddp"]["losses"] for answer in played]
    mean = [sum(each) / RANKS for each in zip(*losses, strict=True)]
    told = [answer["adam"]["losses"] for answer in played if answer["adam"]["losses"][0] is not None]
    assert [sum(each) / len(told) for each in zip(*told, strict=True)] == pytest.approx(mean, rel=1e-3)
    assert mean[-1] < 0.9 * mean[0]
    (note,) = played[0]["adam"]["notes"]
    assert (note["event"], note["pp"], note["dp"], note["tp"]) == ("pipeline", 2, 2, 2)
    assert (note["cuts"], note["micro_batches"], note["placement"]) == ([0, 3], 4, list(range(RANKS)))
    assert not played[1]["adam"]["notes"]


def test_what_a_compressor_makes_of_gradients_leaves_shards_alike(played: Answers) -> None:
    """A norm's gradient lies in a bucket of its own on each shard, and loses the same there."""
    assert len({answer["topk gradients"]["crc32"] for answer in played}) == 1
    assert _sent(played, "topk gradients") < _sent(played, "adam")
    told = [answer["topk gradients"]["losses"] for answer in played if answer["topk gradients"]["losses"][0]]
    assert all(losses[-1] < losses[0] for losses in told)


def test_adapters_train_in_stages(played: Answers, folder: Path) -> None:
    assert torch.allclose(parameters(folder, "lora"), parameters(folder, "lora, ddp"), atol=1e-4)


def test_a_stage_that_dies_is_named_by_those_that_wait_for_it(tmp_path: Path) -> None:
    spec = make_spec("hybrid", workers=3, steps=2000, strategy_params={"pp": 3})

    def on_event(event: dict[str, Any], workers: Workers) -> None:
        if event["event"] == "step" and event["rank"] == 1 and event["step"] == 3:
            workers[1].send_signal(signal.SIGKILL)

    outcome = run(spec, tmp_path, on_event=on_event, stops={1: {3}})
    assert outcome.status[1] == -signal.SIGKILL and 0 not in outcome.status.values()
    said = {fault["rank"]: fault["message"] for fault in outcome.of("fault")}
    assert set(said) == {0, 2}
    for message in said.values():
        assert "rank 1" in message and "failed in step" in message
        assert "activations between" in message or "gradients between" in message


def test_a_run_evaluates_the_whole_model_and_ends_alike(tmp_path: Path) -> None:
    outcome = run(make_spec("hybrid", workload="digits", steps=30, evaluate_every=15), tmp_path)
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    assert [found["step"] for found in outcome.of("evaluation")] == [15, 30]
    assert outcome.of("evaluation")[-1]["value"] > 0.9
    assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1
    (sent,) = {*outcome.payloads(1)[:14]}
    assert {*outcome.payloads(1)[15:29]} == {sent} and outcome.payloads(1)[14] > sent == outcome.payloads(0)[0]
    assert [event["samples"] for event in outcome.of("step", 0)] == [32] * 30
    assert len(outcome.of("pipeline")) == 1


def test_what_is_measured_beforehand_is_the_whole_model() -> None:
    found = measure(make_spec(workers=RANKS, **_given(pp=2)))
    assert found.forward_s > 0 and found.backward_s > 0 and sum(found.buckets) == EMBEDDINGS + 2 * BLOCK
    assert not measure(make_spec(workers=4, **_given(DIGITS, pp=4) | {"regions": (2, 2)})).buckets


@pytest.mark.parametrize(
    ("params", "said"),
    [
        (
            {"pp": 0, "schedule": "zero", "placement": "near", "activations": "powersgd", "collective": "gloo"},
            [
                "strategy.pp=0: must be a whole number, at least 1",
                "strategy.placement=near: unknown; known: across, inside",
                "strategy.schedule=zero: unknown",
                "strategy.activations=PowerSGD: works among all ranks",
                "strategy.collective=gloo: unknown; known: ring",
            ],
        ),
        ({"cuts": [], "activations": "zip"}, ["strategy.cuts=[]: must be a list", "strategy.activations=zip: unknown"]),
        (
            {"pp": 3, "tp": 3, "cuts": [0, 9, 11]},
            [
                "strategy.pp=3 x tp=3: a replica of 9 ranks does not divide 8 ranks",
                "strategy.tp=3: does not divide the 4 heads of a block",
                "strategy.tp=3: does not divide the 128 width of a block",
            ],
        ),
        ({"pp": 2, "dp": 2}, ["strategy.pp=2 x dp=2 x tp=1: 4 ranks, but there are 8"]),
        ({"pp": 2, "cuts": [0, 9]}, ["strategy.cuts=[0, 9]: the last stage begins at 9, and there are pieces 0 embed"]),
        ({"pp": 8}, ["strategy.pp=8: 8 stages, and the model has 5 pieces; use fewer"]),
        ({"pp": 2, "cuts": [0, 1, 2]}, ["strategy.cuts=(0, 1, 2): 3 stages, but pp=2; give as many"]),
        ({"pp": 2, "micro_batch": 3}, ["strategy.micro_batch=3: must divide the 2 samples of a replica"]),
        (
            {"schedule": "auto"},
            ["strategy.schedule=auto: is chosen with a plan; give plan"],
        ),
        ({"pp": 4, "micro_batch": 4}, ["strategy.schedule=1f1b: 1 micro-batches; must be at least pp=4"]),
        (
            {"pp": 1, "tp": 8},
            ["strategy.tp=8: does not divide the 4 heads", "strategy.placement=across: 8 ranks of tp=8"],
        ),
    ],
)
def test_what_cannot_be_is_refused_all_at_once(params: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        build_parts(make_spec(workers=RANKS, **_given(**params)))
    assert len(caught.value.faults) == len(said)
    for fault, text in zip(caught.value.faults, said, strict=True):
        assert fault.startswith(text)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"compressor": "signsgd"}, "SignSGD takes over the optimizer"),
        ({"compressor": "adaptive", "strategy_params": {"pp": 2, "tp": 2}}, "goes by what each rank measures"),
        ({"compressor": "topk", "strategy_params": {"pp": 4, "tp": 2}}, "TopK compresses gradients on their way"),
        ({"workload_params": {"_target_": "tests.distributed.small_model.SmallModel"}}, "SmallModel is no chain"),
        (LORA | {"strategy_params": {"pp": 2, "tp": 2}}, "transform=lora: changes a model of which strategy=hybrid"),
        (
            {"workload_params": BYTELM | {"partition": {"_target_": "testbed.worker.data.partitions.Iid"}}},
            "leave workload.partition out",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        build_parts(make_spec(workers=RANKS, **(_given(pp=2) | given)))
