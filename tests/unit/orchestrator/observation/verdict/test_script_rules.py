"""A user's script that does not use the network gets that as a reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import pytest

from testbed.core.spec.run_spec import Part, RunSpec
from testbed.orchestrator.observation.verdict.script_rules import LEAST_BYTES, SILENT_S, Scripts
from topologies import lan

SPEC = RunSpec(
    topology=lan.build(workers=3),
    workload=Part("script", "longhaul.program.Script"),
    strategy=Part("script", "longhaul.program.Script"),
    compressor=Part("none", "compressors.none.Uncompressed"),
    device=Part("native", "x.Y"),
)
NODES = [node.name for node in SPEC.topology.nodes]


def found(events: Iterable[dict[str, Any]], spec: RunSpec = SPEC) -> list[tuple[bool, str]]:
    rules = Scripts(spec)
    for event in events:
        rules.add(event)
    return list(rules.findings())


def sent(*sizes_bytes: int, t_s: float = 1.0) -> list[dict[str, Any]]:
    return [
        {"event": "link", "wan": False, "name": node, "from": node, "to": "r", "wire_bytes": size, "t_s": t_s}
        for node, size in zip(NODES, sizes_bytes, strict=False)
    ]


def ends(*joined: bool) -> list[dict[str, Any]]:
    return [
        {"event": "script_end", "rank": rank, "node": NODES[rank], "joined": one, "how": "ended with status 0"}
        for rank, one in enumerate(joined)
    ]


def test_a_script_that_sent_nothing_is_invalid() -> None:
    ((grave, reason),) = found([*sent(0, 0, LEAST_BYTES - 1), *ends(True, True, True)])
    assert grave and reason.startswith("no worker sent anything over the network: ranks meet at MASTER_ADDR")
    ((grave, reason),) = found([*sent(0, 0, 0), *ends(False, False, False)])
    assert grave and "the script never joined a process group" in reason


def test_it_is_said_while_the_script_runs_too() -> None:
    assert found(sent(0, 0, 0, t_s=SILENT_S - 1)) == []
    ((grave, _),) = found(sent(0, 0, 0, t_s=SILENT_S))
    assert grave
    assert found([*sent(0, 0, 0, t_s=SILENT_S), *sent(10**6, 10**6, 10**6, t_s=SILENT_S + 1)]) == []


def test_a_worker_of_its_own_is_named() -> None:
    (silent, alone) = found([*sent(10**6, 0, 10**6), *ends(True, False, True)])
    assert silent == (False, silent[1]) and silent[1].startswith(
        f"{NODES[1]} sent nothing over the network, the others 2"
    )
    assert alone == (
        False,
        f"rank 1 on {NODES[1]} never joined a process group (torch.distributed.init_process_group)",
    )


def test_bytes_without_a_process_group_are_a_reason_too() -> None:
    ((grave, reason),) = found([*sent(10**6, 10**6, 10**6), *ends(False, False, False)])
    assert not grave and reason.count(" on ") == 3


@pytest.mark.parametrize("program", ["training", "hand", "one worker"])
def test_other_runs_are_not_asked(program: str) -> None:
    target = "longhaul.program.Hand" if program == "hand" else "x.Y"
    spec = dataclasses.replace(SPEC, workload=Part(program, target), steps=1)
    if program == "one worker":
        spec = dataclasses.replace(SPEC, topology=lan.build(workers=1))
    assert found([*sent(0, 0, 0, t_s=99), *ends(False)], spec) == []


def test_a_script_that_uses_the_network_has_no_finding() -> None:
    assert found([*sent(10**6, 10**6, 10**6), *ends(True, True, True)]) == []


def test_a_compressor_that_no_hook_took_is_a_reason() -> None:
    spec = dataclasses.replace(SPEC, compressor=Part("topk", "compressors.topk.TopK", {"density": 0.01}))
    run = [*sent(10**6, 10**6, 10**6), *ends(True, True, True)]
    ((grave, reason),) = found(run, spec)
    assert not grave and reason.startswith("compressor=topk: the script did not take it")
    for target, count in (("compressors.topk.TopK", 0), ("compressors.int8.Int8", 1)):
        hook = {"event": "hook", "rank": 0, "name": "x", "target": target, "params": {}}
        assert len(found([hook, *run], spec)) == count
