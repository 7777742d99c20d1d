from __future__ import annotations

import copy
import faulthandler
import itertools
import json
import math
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from testbed.core.models.catalogue import find_model
from testbed.core.models.model import Layer, Model
from testbed.core.models.model_file import model_to_json
from testbed.worker.data.gradient_pool import BAND_NUMEL, BANDS, DENSE, POOL_BYTES, ROW_NUMEL, TEXTURES, gradient_pool
from testbed.worker.interfaces.workload import parameters_crc32
from testbed.worker.interfaces.workload_capabilities import Modelled
from testbed.worker.reduction.buckets import Bucket, Buckets
from testbed.worker.reduction.fusion import grouped
from testbed.worker.workloads.digits import Digits
from testbed.worker.workloads.replay import WARM_UP_NUMEL, Replay, ReplayModel


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # as workers have; a forked process must not look for the threads of its parent


def backward(replay: Replay, model: nn.Module, *, step: int = 0, rank: int = 0, seed: int = 0) -> None:
    batch = replay.batch(step, rank=rank, world_size=4, batch_size=8, seed=seed)
    replay.loss(model, batch).backward()


def gradients(replay: Replay, **moment: int) -> list[Tensor]:
    model = replay.model(0)
    backward(replay, model, **moment)
    return [p.grad for p in model.parameters() if p.grad is not None]


def private_bytes() -> int:
    """Memory of this process that no file stands for."""
    with open("/proc/self/smaps_rollup") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def test_parameters_have_the_models_shapes_in_its_order() -> None:
    model = Replay(model="resnet18").model(0)
    assert [tuple(p.shape) for p in model.parameters()] == list(find_model("resnet18").shapes)
    assert all(p.requires_grad and p.dtype == torch.float32 and p.is_contiguous() for p in model.parameters())
    assert parameters_crc32(model) == parameters_crc32(Replay(model="resnet18").model(5))


def test_gradients_reach_buckets_in_the_order_of_backward_through_hooks() -> None:
    replay, ready = Replay(model="resnet18"), list[int]()
    model = replay.model(0)
    arrived: list[torch.Size] = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: arrived.append(p.shape))
    buckets = Buckets(grouped(model.parameters(), 4 * 2**20), lambda bucket: ready.append(bucket.layout.bucket))
    buckets.reset()
    backward(replay, model, step=3, rank=1)
    assert ready == list(range(len(buckets.buckets)))
    assert len(arrived) == len(find_model("resnet18").shapes)
    assert arrived[0][0] == 1000 and (64, 3, 7, 7) in {tuple(shape) for shape in arrived[-3:]}
    for whole, alone in zip(model.parameters(), gradients(replay, step=3, rank=1), strict=True):
        assert whole.grad is not None and torch.equal(whole.grad, alone)


def test_gradients_follow_from_seed_rank_and_step() -> None:
    replay = Replay(model="mobilenet_v2")
    first = gradients(replay, step=1, rank=2, seed=3)
    for again, same in (({"step": 1, "rank": 2, "seed": 3}, True), ({"step": 2, "rank": 2, "seed": 3}, False)):
        assert all(torch.equal(a, b) for a, b in zip(first, gradients(replay, **again), strict=True)) is same
    for other in ({"step": 1, "rank": 1, "seed": 3}, {"step": 1, "rank": 2, "seed": 4}):
        unlike = sum(not torch.equal(a, b) for a, b in zip(first, gradients(replay, **other), strict=True))
        assert unlike > 0.95 * len(first)


def test_a_gradient_may_be_written_to_and_the_pool_stays() -> None:
    replay = Replay(model="mobilenet_v2")
    first = [g.clone() for g in gradients(replay)]
    for gradient in gradients(replay):
        gradient.zero_()
    assert all(torch.equal(a, b) for a, b in zip(first, gradients(replay), strict=True))


def test_parameters_may_be_written_to_and_no_other_process_sees_it() -> None:
    model = Replay(model="mobilenet_v2").model(0)
    parameter = next(model.parameters())
    before = parameters_crc32(model)
    pid = os.fork()
    if pid == 0:
        with torch.no_grad():
            parameter.add_(1)
        os._exit(0 if parameters_crc32(model) != before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert parameters_crc32(model) == before


def _taken_by_two_steps() -> float:
    """Bytes for each of the model's parameters."""
    torch.set_num_threads(1)
    replay = Replay(model="bert-base")
    replay.preload()
    model = replay.model(0)
    before = private_bytes()
    buckets = Buckets(grouped(model.parameters(), 4 * 2**20), lambda bucket: None)
    for step in range(2):
        buckets.reset()
        backward(replay, model, step=step)
        replay.optimizer(model.parameters()).step()
    assert parameters_crc32(model)
    copy.deepcopy(model)
    return (private_bytes() - before) / sum(p.numel() for p in model.parameters())


@pytest.mark.tier("all")
def test_a_worker_takes_the_memory_of_its_buckets_alone() -> None:
    # A process of its own: one that ran other tests holds memory that they gave back.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        taken = process.submit(_taken_by_two_steps).result(100)
    assert 4 <= taken < 1.2 * 4  # a copy of parameters or gradients would double it


def test_warming_up_takes_the_smallest_of_layers_that_are_all_large(tmp_path: Path) -> None:
    shapes = {"large": (WARM_UP_NUMEL, 3), "larger": (WARM_UP_NUMEL, 4)}
    layers = tuple(Layer(name, (shape,), 1.0) for name, shape in shapes.items())
    table = tmp_path / "large.json"
    table.write_text(json.dumps(model_to_json(Model("large", layers, 7 * WARM_UP_NUMEL, None, "a sample", "a test"))))
    replay = Replay(model=str(table))
    (parameter,) = replay.warm_up_model(replay.model(0)).parameters()
    assert parameter.shape == shapes["large"]


def test_warming_up_takes_little_memory_and_another_model() -> None:
    replay = Replay(model="vgg19")
    model = replay.model(0)
    warm = replay.warm_up_model(model)
    assert isinstance(warm, ReplayModel)
    assert WARM_UP_NUMEL / 2 < sum(p.numel() for p in warm.parameters()) <= WARM_UP_NUMEL
    backward(replay, warm)
    assert all(p.grad is not None for p in warm.parameters())
    assert all(p.grad is None for p in model.parameters())


def test_a_forked_process_uses_the_pool_of_its_parent_without_a_descriptor() -> None:
    replay = Replay(model="alexnet")
    replay.preload()
    expected = float(gradients(replay, step=9)[-2].double().norm())
    pid = os.fork()
    if pid == 0:
        os.closerange(3, 1024)
        os._exit(0 if float(gradients(Replay(model="alexnet"), step=9)[-2].double().norm()) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _write_to_the_pool() -> None:
    faulthandler.disable()  # what is to come is meant
    gradient_pool().reserve(16)
    gradient_pool().gradient(0, 0, (16,)).zero_()


def test_nobody_can_write_to_the_pool() -> None:
    process = multiprocessing.get_context("fork").Process(target=_write_to_the_pool)
    process.start()
    process.join(60)
    assert process.exitcode == -11  # SIGSEGV


def test_a_view_runs_on_from_the_end_of_its_band_to_the_start() -> None:
    pool = gradient_pool()
    pool.reserve(3 * BAND_NUMEL)
    for band in (0, BANDS - 1):
        view = pool.gradient(band, BAND_NUMEL - 16, (3 * BAND_NUMEL,))
        assert view.is_contiguous()
        assert torch.equal(view[16 : 16 + BAND_NUMEL], pool.gradient(band, 0, (BAND_NUMEL,)))
        assert torch.equal(view[:16], view[BAND_NUMEL : BAND_NUMEL + 16])


@pytest.mark.parametrize("band", range(BANDS))
def test_bands_have_the_texture_they_are_said_to_have(band: int) -> None:
    pool, texture = gradient_pool(), TEXTURES[band]
    pool.reserve(1)
    values = pool.gradient(band, 0, (BAND_NUMEL // ROW_NUMEL, ROW_NUMEL)).double()
    assert float(values.square().mean().sqrt()) == pytest.approx(texture.rms, rel=1e-3)
    assert abs(float(values.mean())) < 0.01 * texture.rms
    kept = (1 - texture.zero_rows) * (1 - texture.zero_columns)
    assert float((values != 0).double().mean()) == pytest.approx(kept, abs=0.01)
    kurtosis = float(values.pow(4).mean() / values.square().mean().square())
    theory = 3 * math.exp(4 * (texture.row_spread**2 + texture.column_spread**2)) / kept
    assert kurtosis == pytest.approx(theory, rel=0.35)  # of few columns; heavy tails converge slowly


def test_scales_of_tensors_are_spread() -> None:
    sizes = {round(math.log(float(g.square().mean().sqrt()))) for g in gradients(Replay(model="resnet50"))}
    assert len(sizes) >= 3
    assert len({TEXTURES[band].rms for band in DENSE}) == len(DENSE)
    assert POOL_BYTES == 64 * 2**20


def test_parameters_of_their_own_are_the_same_on_all_ranks_and_overlap_nowhere() -> None:
    replay = Replay(model="resnet20")
    models = [replay.model(0) for _ in range(2)]
    assert [replay.own_parameters(model, seed=3) for model in models] == ["fashion"] * 2
    assert parameters_crc32(models[0]) == parameters_crc32(models[1])
    ends = sorted((p.data_ptr(), p.data_ptr() + p.nbytes) for p in models[0].parameters())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    other = replay.model(0)
    replay.own_parameters(other, seed=4)
    assert parameters_crc32(other) != parameters_crc32(models[0])


@pytest.mark.parametrize(("model", "scale"), [("resnet20", 1), ("densenet40", 7), ("lstm", 100)])
def test_what_training_would_change_is_drawn(model: str, scale: float) -> None:
    replay = Replay(model=model, scale=scale)

    def change(*, rank: int = 0, round_: int = 0, steps: int = 10) -> Tensor:
        trained = replay.model(0)
        replay.own_parameters(trained, seed=0)
        parameters = list(trained.parameters())
        before = torch.cat([p.detach().view(-1) for p in parameters])
        replay.draw_change(trained, parameters[:-1], seed=0, rank=rank, round_=round_, steps=steps)
        assert torch.equal(parameters[-1].detach().view(-1), before[-parameters[-1].numel() :])  # not asked for
        return torch.cat([p.detach().view(-1) for p in parameters[:-1]]) - before[: -parameters[-1].numel()]

    first = change()
    assert float((first == 0).double().mean()) < 0.01
    assert torch.equal(first, change())
    assert float(change(steps=50).norm() / first.norm()) == pytest.approx(3.3, abs=0.7)
    among_ranks, among_rounds = (
        float(torch.cosine_similarity(first, other, dim=0)) for other in (change(rank=1), change(round_=1))
    )
    assert abs(among_rounds) < 0.1
    assert 0.03 < among_ranks < 0.5


def test_layers_are_modules_whose_work_is_known() -> None:
    replay = Replay(model="gpt2", tokens=256)
    model = replay.model(0)
    batch = replay.batch(0, rank=0, world_size=1, batch_size=4, seed=0)
    flop = replay.forward_flop(model, batch)
    assert sum(flop.values()) == 4 * find_model("gpt2", tokens=256).forward_flop
    modules = dict(model.named_modules())
    assert flop.keys() <= modules.keys()
    owners = {name.rpartition(".")[0] for name, _ in model.named_parameters()}
    assert owners <= flop.keys()


def test_a_scaled_replay_has_smaller_tensors() -> None:
    whole, tenth = Replay(model="resnet50"), Replay(model="resnet50", scale=10)
    numel = sum(p.numel() for p in tenth.model(0).parameters())
    assert numel == pytest.approx(find_model("resnet50").parameters / 10, rel=0.01)
    assert [layer.forward_flop for layer in tenth.layers] == [layer.forward_flop for layer in whole.layers]


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="unknown") as caught:
        Replay(model="lenet", scale=0.5, epoch_samples=0)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["model=lenet", "scale=0.5", "epoch_samples=0"]
    assert "resnet50" in lines[0]
    with pytest.raises(NotImplementedError, match="no metric"):
        Replay(model="resnet18").evaluate(nn.Identity())
    assert Replay(model="resnet18", epoch_samples=77).samples() == 77


def test_buckets_know_nothing_of_a_replay() -> None:
    seen: list[Bucket] = []
    replay = Replay(model="vgg16")
    buckets = Buckets(grouped(replay.model(0).parameters(), 4 * 2**20), seen.append)
    assert max(bucket.flat.numel() for bucket in buckets.buckets) == 4096 * 25088


def test_a_replay_has_its_layers_from_a_table_and_a_model_that_computes_has_not() -> None:
    assert not isinstance(Digits(), Modelled)
    replay = Replay(model="resnet18", scale=16)
    assert isinstance(replay, Modelled)
    whole, sent = replay.modelled_layers()
    assert [layer.name for layer in whole] == [layer.name for layer in sent]
    assert sum(layer.numel for layer in sent) == pytest.approx(sum(layer.numel for layer in whole) / 16, rel=0.01)
