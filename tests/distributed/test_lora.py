"""Fine-tuning by real ranks: what is sent, what learns, with whom adapters go together, and a model from run to run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.core.errors import InputError
from testbed.worker.interfaces.workload import trained
from testbed.worker.model import checkpoint
from testbed.worker.training.parts import build_parts, first_model
from tests.distributed.harness import make_spec, part, run
from tests.distributed.trainings import Answers, Case, parameters, play

SMALL = {"_target_": "tests.distributed.small_model.SmallModel", "learning_rate": 0.05}
ADAPTERS = 2 * (9 + 6) + 2 * (96 + 24) + 2 * (24 + 5)
"""Elements of rank 2 beside the small model's three layers."""
FULL = 6 * 9 + 6 + 96 * 24 + 24 + 2 * 24 + 24 * 5 + 5
STEPS = 6
COMBINED: dict[str, dict[str, Any]] = {
    "ddp": {},
    "ddp clipped": {"strategy_params": {"clip_norm": 0.05, "bucket_size": "256 B"}},
    "ddp topk": {"compressor": "topk", "compressor_params": {"density": 0.1}},
    "ddp powersgd": {"compressor": "powersgd"},
    "ddp onebit_adam": {"compressor": "onebit_adam"},
    "dear": {"strategy": "dear", "strategy_params": {"bucket_size": "256 B"}},
    "torch_ddp": {"strategy": "torch_ddp"},
    "diloco": {"strategy": "diloco", "strategy_params": {"sync_every": 2, "fragments": 2}},
    "lamb": {"strategy": "lamb"},
    "slamb": {"strategy": "slamb", "strategy_params": {"sync_every": 2}},
    "spd_kfac": {"strategy": "spd_kfac"},
    "pad_kfac": {"strategy": "pad_kfac"},
    "parameter_server": {"strategy": "parameter_server", "strategy_params": {"local_steps": 2}},
    "gossip topk": {"strategy": "gossip", "compressor": "topk", "compressor_params": {"density": 0.1}},
}


def _lora(**given: Any) -> dict[str, Any]:
    return dataclasses.asdict(part("transform", "lora", {"rank": 2, **given}))


def _spec(name: str) -> dict[str, Any]:
    return {"workload_params": SMALL, "transform": _lora(), "batch_size": 8, **COMBINED[name]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("combined")


@pytest.fixture(scope="module")
def combined(folder: Path) -> Answers:
    cases = [Case(name=name, spec=_spec(name), end=STEPS) for name in COMBINED]
    return play(cases, 2, folder)


@pytest.mark.parametrize("name", COMBINED)
def test_strategies_and_compressors_train_the_adapters_and_nothing_else(
    name: str, combined: Answers, folder: Path
) -> None:
    one, other = (answer[name] for answer in combined)
    assert one["crc32"] == other["crc32"]
    spec = make_spec(**_spec(name))
    model, _ = first_model(spec, build_parts(spec))
    named = dict(model.named_parameters())
    after = parameters(folder, name).split([p.numel() for p in named.values()])
    moved = {n for (n, p), now in zip(named.items(), after, strict=True) if not torch.equal(p.detach().view(-1), now)}
    assert moved == {n for n, p in named.items() if p.requires_grad}
    assert sum(p.numel() for p in trained(model)) == ADAPTERS


def test_what_is_sent_is_the_adapters_gradients_to_the_byte(combined: Answers) -> None:
    for name in ("ddp", "ddp clipped", "dear", "torch_ddp", "lamb"):
        sent = [answer[name]["sent"] for answer in combined]
        assert sum(sent) == 2 * STEPS * 4 * ADAPTERS, name  # a ring's 2 (P - 1) / P of each of both ranks
    assert combined[0]["ddp topk"]["sent"] < combined[0]["ddp"]["sent"] / 3
    assert combined[0]["spd_kfac"]["sent"] > combined[0]["ddp"]["sent"]


@pytest.mark.tier("test")
def test_a_run_is_trained_kept_and_fine_tuned_by_the_loop(tmp_path: Path) -> None:
    """Whole workers: train and keep, then begin with it and train adapters, which the record tells of."""
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    trained_first = run(make_spec(workload="digits", checkpoint="last", steps=4), first)
    path = str(first / "model.pt")
    start = {"start_from": path, "start_hash": checkpoint.checksum(path)}
    lora = part("transform", "lora", {"rank": 4, "layers": ["6", "8"], "train": ["10"]})
    tuned = run(make_spec(**start, transform=lora, workload="digits", seed=3, checkpoint="last", steps=3), second)
    (note,), (model,) = tuned.of("transform"), tuned.of("model")
    adapters = 4 * (1024 + 640) + 4 * (640 + 640) + 640 * 10 + 10
    assert (note["step"], note["rank"], note["parameters"], model["parameters"]) == (0, 0, adapters, adapters)
    assert model["dense_bytes_step"] == 2 * 4 * note["parameters_before"] > 100 * adapters
    for rank in range(2):
        assert tuned.payloads(rank) == [4 * adapters] * 3
        assert tuned.losses(rank)[0] < trained_first.losses(rank)[0] / 1.5
    workload = build_parts(make_spec(workload="digits")).workload
    states = []
    for folder in (first, second):
        states.append(workload.model(0))
        checkpoint.load(states[-1], str(folder / "model.pt"))
    before, after = (model.state_dict() for model in states)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        "6.weight",
        "8.weight",
        "10.weight",
        "10.bias",
    }
    done = {answer["parameters_crc32"] for answer in tuned.of("done")}
    assert len(done) == 1


def test_a_workload_that_learns_nothing_is_refused_by_name() -> None:
    lora = make_spec(transform=part("transform", "lora"))
    replay = dataclasses.replace(
        lora,
        workload=part("workload", "replay"),
        device=part("device", "paced", {"step_s": 0.1}),
        start_from="/none.pt",
        checkpoint="last",
    )
    with pytest.raises(InputError) as caught:
        build_parts(replay)
    assert caught.value.faults == (
        "start_from=/none.pt: workload=replay learns nothing; leave it out",
        "checkpoint=last: workload=replay learns nothing; leave it out",
    )
    with pytest.raises(InputError, match="transform=lora: workload=replay has no weights of its own to change"):
        build_parts(dataclasses.replace(replay, start_from=None, checkpoint="none"))
