"""A replay under strategies that send parameters, or what has changed of them: changes are drawn."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InputError
from testbed.core.models.catalogue import find_model
from testbed.core.spec.run_spec import RunSpec
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import Outcome, make_spec, part, run

MODEL = find_model("resnet20")
DENSE = 4 * MODEL.parameters
IID = {"_target_": "testbed.worker.data.partitions.Iid"}
FIXED = {"_target_": "testbed.worker.methods.parameter_server.bounds.baselines.Fixed"}


def drawn_spec(strategy: str, compressor: str = "none", workers: int = 2, **params: Any) -> RunSpec:
    spec = make_spec(compressor=compressor, workers=workers, steps=4)
    return dataclasses.replace(
        spec,
        workload=part("workload", "replay", {"model": "resnet20", "epoch_samples": 256}),
        device=part("device", "paced", {"step_s": 0.05}),
        strategy=part("strategy", strategy, params),
    )


def ended(outcome: Outcome, assumed: list[str]) -> None:
    """All ranks end with one model, and the record says what was drawn."""
    assert set(outcome.status.values()) == {0}, outcome.of("fault")
    assert len({done["parameters_crc32"] for done in outcome.of("done")}) == 1
    (drawn,) = outcome.of("drawn_changes")
    assert (drawn["rank"], drawn["texture"], drawn["assumed"]) == (0, "fashion", assumed)


@pytest.mark.parametrize(
    ("strategy", "params", "payloads"),
    [
        ("local_sgd", {"sync_every": 2}, [0, DENSE, 0, DENSE]),
        ("streaming_diloco", {"sync_every": 4, "fragments": 1, "overlap_steps": 1}, [0, 0, 0, DENSE]),
        ("gossip", {"graph": "complete", "local_steps": 2}, [0, DENSE, 0, DENSE]),
    ],
)
def test_replicas_send_as_many_bytes_as_the_model_has(
    strategy: str, params: dict[str, Any], payloads: list[int], tmp_path: Path
) -> None:
    outcome = run(drawn_spec(strategy, **params), tmp_path)
    ended(outcome, [])
    assert [outcome.payloads(rank) for rank in range(2)] == [payloads] * 2


def test_replicas_send_no_zeros(tmp_path: Path) -> None:
    outcome = run(drawn_spec("diloco", "sz3", sync_every=2), tmp_path)
    ended(outcome, ["SZ3"])
    first, *_ = sizes = [size for size in outcome.payloads(0) if size]
    assert len(sizes) == 2 and len(set(sizes)) == 2
    assert DENSE / 100 < first < DENSE / 8  # of zeros nothing but a header would be left


def test_a_region_is_one_replica(tmp_path: Path) -> None:
    spec = dataclasses.replace(
        drawn_spec("diloco", workers=3, sync_every=2, replicas="region", collective="hierarchical"),
        topology=make_spec(workers=3, regions=(2, 1)).topology,
    )
    ended(run(spec, tmp_path), [])


def test_a_server_carries_models_whole(tmp_path: Path) -> None:
    outcome = run(drawn_spec("parameter_server", workers=3, local_steps=2), tmp_path)
    ended(outcome, [])
    assert [one["update_bytes"] for one in outcome.of("round")] == [2 * DENSE] * 2
    assert [one["model_bytes"] for one in outcome.of("round")] == [DENSE] * 2
    assert [one["train_loss"] for one in outcome.of("round")] == [None] * 2


def test_a_server_carries_changes_within_bounds(tmp_path: Path) -> None:
    outcome = run(drawn_spec("parameter_server", "sz3", workers=2, local_steps=2, bound=FIXED), tmp_path)
    ended(outcome, ["sz3 (up)", "zstd (up)", "sz3 (down)", "zstd (down)"])
    later = outcome.of("round")[1]
    for sent in (later["model_bytes"], later["update_bytes"]):
        assert DENSE / 50 < sent < DENSE / 2


@pytest.mark.parametrize(("strategy", "event"), [("federated", "round"), ("fedbuff", "fedbuff_version")])
def test_clients_of_a_replay_are_divided_by_numbers_alone(strategy: str, event: str, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"participants": 2} if strategy == "federated" else {"size": 2}
    outcome = run(drawn_spec(strategy, workers=3, clients=4, partition=IID, **asked), tmp_path)
    ended(outcome, [])
    rounds = outcome.of(event)
    assert [one["train_loss"] for one in rounds] == [None] * 4
    assert all(one["update_bytes"] == pytest.approx(2 * DENSE, rel=1e-3) for one in rounds)  # and a few small tensors


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    ("strategy", "params", "fault"),
    [
        ("parameter_server", {"uplink": {"payload": "grad"}}, r"payload=grad: the server's optimizer changes nothing"),
        ("parameter_server", {"uplink": {"codec": "sz3"}}, r"AdaptiveBound goes by losses, of which Replay has none"),
        ("federated", {"participants": 2}, r"Replay has no labels.*strategy\.partition=\{_target_: .*Iid\}"),
    ],
)
def test_what_would_need_losses_or_labels_is_refused(strategy: str, params: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        build_parts(drawn_spec(strategy, workers=3, **params))
