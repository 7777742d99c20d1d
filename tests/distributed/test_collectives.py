"""Our own collectives over real connections: equal to gloo's, to the byte, under way while others compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.core.costs import collective
from tests.distributed.forked import Forked
from tests.distributed.harness import ROOT, TIMEOUT_S, outputs, port_of_ones_own

NAMES = (*collective.ALGORITHMS, "auto")
COMPRESSORS = ("topk", "sz3", "powersgd")


def play(regions: str, task: str, dead: frozenset[int] = frozenset()) -> list[dict[str, Any]]:
    script = Path(__file__).with_name("regional.py")
    world_size = sum(map(int, regions.split(",")))
    with port_of_ones_own() as port:
        workers = [
            Forked(script, [str(rank), regions, str(port), task], environment={"PYTHONPATH": str(ROOT)}, cwd=ROOT)
            for rank in range(world_size)
        ]
        said = outputs(workers, dead=dead)
    return [{} if rank in dead else json.loads(out) for rank, out in enumerate(said)]


@pytest.fixture(scope="module", params=["3,1", "3,2,1"])
def answers(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return play(request.param, "check,overlap,roots,train" if request.param == "3,1" else "check,overlap")


def test_all_algorithms_agree_and_count_what_they_send(answers: list[dict[str, Any]]) -> None:
    keys = [key for key in answers[0] if key.startswith(("bytes", "values", *NAMES)) and len(key.split()) == 3]
    assert len(keys) == (len(collective.ALGORITHMS) + 1) * 2 * 5 + (len(NAMES) + 1) * 4 * 5, "gloo_ring's too"
    for key in keys:
        found, numel = answers[0][key], key.split()[-1]
        if key.startswith("bytes"):
            sent = sum(answer[key] for answer in answers)
            assert sent == 2 * (len(answers) - 1) * 4 * int(numel), key
        else:
            assert all(answer[key] == found for answer in answers), key  # the same bits on every rank
        if key.startswith("values"):
            assert found == pytest.approx(answers[0][f"values gloo {numel}"], rel=1e-5, abs=1e-4), key
        elif "int32" in key:
            assert found == answers[0][f"gloo torch.int32 {numel}"], key


def test_results_are_right_while_others_compute(answers: list[dict[str, Any]]) -> None:
    size = len(answers)
    for answer in answers:
        assert answer["many"] == [[size * index + size * (size - 1) / 2] for index in range(12)]
        assert 0 < answer["seconds"] < TIMEOUT_S


def test_half_a_ring_and_chains_to_all_roots(answers: list[dict[str, Any]]) -> None:
    if len(answers) == 4:
        assert [answer["half"] for answer in answers] == [3 * 4000] * 4


def test_ddp_trains_as_over_gloo_with_any_compressor(answers: list[dict[str, Any]]) -> None:
    if len(answers) != 4:
        pytest.skip("trained by four ranks only")
    runs = [f"{name} none" for name in (*NAMES, "hierarchical/wan", "hierarchical_two_shot/wan")]
    for key in [*runs, *(f"hierarchical {compressor}" for compressor in COMPRESSORS)]:
        _, compressor = key.split()
        assert len({answer[f"crc {key}"] for answer in answers}) == 1
        if compressor == "none":
            assert sum(answer[f"sent {key}"] for answer in answers) == answers[0][f"dense {key}"]
        tolerance = 1e-6 if compressor == "none" else 1e-4
        for answer in answers:
            expected = answer[f"losses gloo {compressor}"]
            assert answer[f"losses {key}"] == pytest.approx(expected, rel=tolerance, abs=tolerance), key


def test_a_compressor_on_the_wan_alone(answers: list[dict[str, Any]]) -> None:
    if len(answers) != 4:
        pytest.skip("trained by four ranks only")
    for compressor in COMPRESSORS:
        key = f"hierarchical/wan {compressor}"
        assert len({answer[f"crc {key}"] for answer in answers}) == 1
        assert all(answer[f"losses {key}"][-1] < answer[f"losses {key}"][0] for answer in answers)
        # Rank 2 passes on whole tensors at the end of its region's chain; rank 3 is alone in its own, and leads.
        dense = answers[0][f"dense {key}"] / 6
        assert answers[2][f"sent {key}"] == dense
        assert 0 < answers[3][f"sent {key}"] < 0.6 * dense


def test_a_rank_that_dies_in_a_collective_is_an_error_on_all_others() -> None:
    *survivors, _ = play("2,2", "die", dead=frozenset({3}))
    for rank, answer in enumerate(survivors):
        assert answer["error"].startswith(f"rank {rank}: all_reduce of 8000000 bytes by hierarchical failed in step 7")
        assert answer["after_s"] < TIMEOUT_S
