"""Learning-rate schedules of workloads under every way to train: whoever takes the steps, takes them at that rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.worker.training.parts import build_parts
from tests.distributed.harness import make_spec
from tests.distributed.trainings import Case, parameters, play

RANKS, STEPS = 4, 4
NO_RATE = {"workload_params": {"warm_up_steps": 10**8}}
"""A warm-up so long that nothing is learnt by its beginning."""
KINDS: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp"},
    "ddp, compressor steps": {"strategy": "ddp", "compressor": "signsgd"},
    "ddp, compressor steps at its rate": {
        "strategy": "ddp",
        "compressor": "signum",
        "compressor_params": {"learning_rate": 0.01},
    },
    "dear": {"strategy": "dear"},
    "dkfac": {"strategy": "dkfac"},
    "federated": {"strategy": "federated", "strategy_params": {"clients": 6, "participants": 6}},
    "federated, the workload's optimizer": {
        "strategy": "federated",
        "strategy_params": {"clients": 6, "participants": 6, "learning_rate": None},
    },
    "fedbuff": {"strategy": "fedbuff", "strategy_params": {"clients": 6, "size": 3}},
    "gossip": {"strategy": "gossip"},
    "hybrid": {"strategy": "hybrid", "strategy_params": {"pp": 2, "dp": 2}},
    "lamb at its rate": {"strategy": "lamb", "strategy_params": {"learning_rate": 0.02}},
    "local_sgd": {"strategy": "local_sgd", "strategy_params": {"sync_every": 2}},
    "parameter_server": {"strategy": "parameter_server", "strategy_params": {"local_steps": 2}},
    "parameter_server, the server steps": {
        "strategy": "parameter_server",
        "strategy_params": {"local_steps": 2, "uplink": {"payload": "grad"}},
    },
    "slamb at its rate": {"strategy": "slamb", "strategy_params": {"learning_rate": 0.02}},
    "torch_ddp": {"strategy": "torch_ddp"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schedules")
    asked = [(name, given | more) for name, given in KINDS.items() for more in ({}, NO_RATE)]
    cases = [
        Case(name=name + (" without a rate" if "workload_params" in given else ""), spec=given, end=STEPS)
        for name, given in asked
    ]
    play(cases, RANKS, folder)
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_the_rate_of_a_step_is_the_schedules(name: str, folder: Path) -> None:
    workload = build_parts(make_spec()).workload
    first = [parameter.detach().view(-1) for parameter in workload.model(0).parameters()]
    begun = first[0].new_tensor([value for part in first for value in part.tolist()])
    for rank in range(1, RANKS):
        moved = (parameters(folder, name, rank) - begun).norm() / begun.norm()
        scheduled = (parameters(folder, f"{name} without a rate", rank) - begun).norm() / begun.norm()
        assert moved > 1e-3 and scheduled < 1e-5
