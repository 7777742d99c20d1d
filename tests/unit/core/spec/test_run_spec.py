from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from testbed.core.costs.sockets import NCCL
from testbed.core.errors import EXIT_INPUT, InputError
from testbed.core.spec.connections import MAX_CONNECTIONS, MAX_OF_A_WORKER
from testbed.core.spec.run_spec import Part, RunSpec
from testbed.core.spec.schedule import Change
from topologies import two_regions


def spec(**changes: Any) -> RunSpec:
    fields: dict[str, Any] = {
        "topology": two_regions.build(workers=4),
        "workload": Part("digits", "testbed.worker.workloads.digits.Digits", {"learning_rate": 0.01}),
        "strategy": Part("ddp", "testbed.worker.strategies.ddp.DDP"),
        "compressor": Part("topk", "compressors.topk.TopK", {"density": 0.01}),
        "device": Part("native", "testbed.core.device.Native"),
        "steps": 10,
        **changes,
    }
    return RunSpec(**fields)


def test_json_round_trip_keeps_the_hash() -> None:
    before = spec(target=0.9, seed=3)
    data = json.loads(json.dumps(before.to_json()))
    after = RunSpec.from_json(data)
    assert after == before
    assert after.hash == before.hash == data["hash"]


def test_unknown_keys_of_a_newer_record_are_passed_over() -> None:
    assert RunSpec.from_json({**spec().to_json(), "code_hash": "0" * 16}) == spec()


def test_workers_are_the_nodes() -> None:
    assert spec().workers == 4
    assert spec().topo == "two_regions"


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"steps": 11},
        {"dilation": 2.0},
        {"shaper": "nfqueue"},
        {"tcp": "reno"},
        {"connections": 1},
        {"connections": 4},
        {"timeout_s": 60.0},
        {"compressor": Part("topk", "compressors.topk.TopK", {"density": 0.02})},
        {"topology": two_regions.build(workers=4, rtt="68 ms")},
    ],
)
def test_what_can_change_a_result_changes_the_hash(change: dict[str, Any]) -> None:
    assert spec(**change).hash != spec().hash


def test_data_that_differ_change_the_hash_and_data_without_one_leave_it_as_it_was() -> None:
    assert spec(data_hash="a").hash != spec(data_hash="b").hash != spec().hash
    older = spec().to_json()
    del older["data_hash"]
    assert RunSpec.from_json(older).hash == older["hash"]


def test_what_a_run_begins_with_counts_by_its_content_and_not_by_where_it_lies() -> None:
    one, moved = (spec(start_from=path, start_hash="a") for path in ("/a/model.pt", "/b/model.pt"))
    assert one.hash == moved.hash != spec(start_from="/a/model.pt", start_hash="b").hash
    assert len({one.hash, spec().hash, spec(start_from="/a/model.pt").hash}) == 3
    assert RunSpec.from_json(one.to_json()) == one


def test_what_is_kept_does_not_change_the_hash_and_specs_from_before_have_theirs() -> None:
    assert spec(checkpoint="last").hash == spec().hash
    older = spec().to_json()
    for key in ("start_from", "start_hash", "checkpoint"):
        del older[key]
    assert RunSpec.from_json(older).hash == older["hash"] == "6b5decdd8eeed34e"


def test_specs_without_connections_are_written_and_hash_as_before() -> None:
    older = spec().to_json()
    assert "connections" not in older and RunSpec.from_json(older).hash == older["hash"]
    asked = spec(connections=4)
    assert RunSpec.from_json(asked.to_json()) == asked and asked.to_json()["connections"] == 4


def test_the_metrics_port_does_not_change_the_hash() -> None:
    assert spec(metrics_port=0).hash == spec().hash


def test_the_order_of_parameters_does_not_change_the_hash() -> None:
    one = Part("x", "m.X", {"a": 1, "b": 2})
    other = Part("x", "m.X", {"b": 2, "a": 1})
    assert spec(strategy=one).hash == spec(strategy=other).hash


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"steps": None}, "give exactly one of the two"),
        ({"epochs": 1.0}, "give exactly one of the two"),
        ({"steps": 0}, "steps=0: must be at least 1"),
        ({"steps": None, "epochs": 0.0}, "epochs=0.0: must be above 0"),
        ({"steps": None, "epochs": math.nan}, "epochs=nan: must be above 0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"evaluate_every": 0}, "evaluate_every=0"),
        ({"seed": -1}, "seed=-1: must be from 0 to below 2**31"),
        ({"seed": 2**31}, "seed=2147483648: must be from 0 to below 2**31"),
        ({"dilation": 0.5}, "dilation=0.5: must be at least 1"),
        ({"dilation": math.nan}, "dilation=nan"),
        ({"timeout_s": 0.0}, "timeout_s=0.0"),
        ({"metrics_port": -1}, "metrics_port=-1"),
        ({"metrics_port": 65536}, "metrics_port=65536"),
        ({"checkpoint": "best"}, "checkpoint=best: unknown; known: none, last"),
        ({"runtime": "podman"}, "runtime=podman: unknown; known: runc, docker"),
        ({"shaper": "tc"}, "shaper=tc: unknown; known: auto, netem, nfqueue"),
        ({"connections": 0}, "connections=0: must be from 1 to 32"),
        ({"connections": 33}, "connections=33: must be from 1 to 32"),
        (
            {"connections": 16, "topology": two_regions.build(workers=64)},
            "connections=16: each of 64 workers would have 1008, and may have 512; use connections=8 at most",
        ),
        (
            {"connections": 8, "topology": two_regions.build(workers=2, rate="64 kbit/s")},
            "connections=8: share 64000 bit/s, of which each must have 10000; use connections=6 at most",
        ),
        ({"tcp": "vegas"}, "tcp=vegas: unknown; known: tuned, stock, reno, bbr"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError) as caught:
        spec(**change)
    assert len(caught.value.faults) == 1
    assert fault in caught.value.faults[0]


def test_a_ring_of_nccl_s_has_two_neighbours_however_many_workers_there_are() -> None:
    """Those of its default, 32, fit too; gloo's own count by peers, in each of its groups."""
    ring = Part("ddp", "testbed.worker.strategies.ddp.DDP", {"collective": "nccl_ring"})
    asked = {"connections": MAX_CONNECTIONS, "topology": two_regions.build(workers=64)}
    assert spec(**asked, strategy=ring).connections == NCCL.connections == MAX_CONNECTIONS
    assert 2 * MAX_CONNECTIONS <= MAX_OF_A_WORKER
    with pytest.raises(InputError, match="each of 64 workers would have 2016"):
        spec(**asked)


def test_every_fault_is_reported_at_once() -> None:
    with pytest.raises(InputError) as caught:
        spec(steps=None, batch_size=0, dilation=0, runtime="podman", tcp="vegas")
    assert len(caught.value.faults) == 5
    assert caught.value.exit_status == EXIT_INPUT


def test_a_spec_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec().seed = 1  # type: ignore[misc]


def test_time_outs_bear_what_events_will_make_of_a_link() -> None:
    slow = Change(t_s=5, kind="set", link="oregon-virginia", values={"delay_s": 0.45})
    assert spec(dilation=4.0).outermost_topology.farthest_rtt_s == pytest.approx(0.067)
    with pytest.raises(InputError, match=r"longest round trip would take 5\.4 s"):
        spec(dilation=6.0, events=(slow,))


def test_the_outermost_topology_has_the_most_each_direction_ever_has() -> None:
    changes = (
        Change(t_s=1, kind="set", link="oregon-virginia", source="oregon", values={"rate_bit_s": 5e9}),
        Change(t_s=2, kind="set", link="oregon-virginia", values={"rate_bit_s": 2e9, "delay_s": 0.01}),
        Change(t_s=3, kind="down", link="oregon-virginia"),
    )
    (link,) = spec(events=changes).outermost_topology.wan_links
    assert (link.forward.rate_bit_s, link.backward.rate_bit_s) == (5e9, 2e9)
    assert link.forward.delay_s == 0.0335
