"""Scripts of users on torch's own DistributedDataParallel, with our compressors as its communication hook."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from compressors.base.compressor import Layout, Route, choose_route
from compressors.base.feedback import with_feedback
from compressors.powersgd import PowerSGD
from testbed.core.record.telemetry import Channel, Welcome
from testbed.worker.training.parts import build_parts
from tests.distributed.forked import Forked
from tests.distributed.harness import COMPRESSORS, HANG_S, ROOT, make_spec, outputs, port_of_ones_own

HERE = Path(__file__).parent
SCRIPTS = ROOT / "experiments" / "scripts"
STEPS = 20


def _environment() -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
    }


def _ranks(script: Path, world_size: int, *arguments: str, environment: dict[int, dict[str, str]]) -> list[str]:
    """Standard output of each rank."""
    with port_of_ones_own() as port:
        shared = {**_environment(), "WORLD_SIZE": str(world_size), "MASTER_PORT": str(port)}
        workers = [
            Forked(
                script,
                arguments,
                environment={**shared, "RANK": str(rank), **environment.get(rank, {})},
                cwd=ROOT,
            )
            for rank in range(world_size)
        ]
        return [out.decode() for out in outputs(workers)]


@pytest.fixture(scope="module", params=[(2, COMPRESSORS), (3, ["powersgd", "sz3", "topk"])], ids=["2", "3"])
def ranks(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    world_size, compressors = request.param
    return [json.loads(out) for out in _ranks(HERE / "hooked.py", world_size, *compressors, environment={})]


def test_without_compression_it_is_plain_ddp(ranks: list[dict[str, Any]]) -> None:
    for answer in ranks:
        assert answer["plain"].keys() == {"plain", "views", "static", "unused", "accumulate"}
        for name, found in answer["plain"].items():
            ours, theirs = found["losses"]
            assert len(ours) == STEPS and ours[-1] < 0.75 * ours[0], name
            assert ours == pytest.approx(theirs, abs=1e-6), name
            assert found["distance"] <= 1e-6, name


def test_every_compressor_trains_and_sends_what_it_declares(ranks: list[dict[str, Any]]) -> None:
    assert len(ranks[0]["compressors"]) >= 3
    for name in ranks[0]["compressors"]:
        _trains_and_sends([answer["compressors"][name] for answer in ranks])


def _trains_and_sends(answers: list[dict[str, Any]]) -> None:
    first, world_size = answers[0], len(answers)
    assert len(first["buckets"][0]) == 1 and len(first["buckets"][1]) == 3  # DDP laid them anew,
    assert first["orders"][0] == sorted(first["orders"][0]) != first["orders"][1]  # in another order,
    assert first["buckets"][1:] == [first["buckets"][1]] * (STEPS - 1)  # once
    sent = [sum(step) for step in zip(*(answer["sent"] for answer in answers), strict=True)]
    assert len(sent) == STEPS
    if first["fixed_size"]:
        assert sent == first["declared"]
    dense = 2 * (world_size - 1) * 4 * sum(first["buckets"][0])
    assert all(0 < step <= dense for step in sent)
    for answer in answers:
        assert answer["buckets"] == first["buckets"] and answer["crc32"] == first["crc32"]
        assert answer["losses"][-1] < 0.75 * answer["losses"][0]
        assert answer["unused_sent"] > 0


@pytest.mark.parametrize("name", ["topk", "powersgd", "sz3"])
def test_nothing_is_lost_when_ddp_lays_its_buckets_anew(ranks: list[dict[str, Any]], name: str) -> None:
    for answer in ranks:
        assert answer["compressors"][name]["lost"] < 1e-5


def test_it_sends_as_much_as_our_own_strategy(ranks: list[dict[str, Any]]) -> None:
    for answer in ranks:
        assert answer["strategy"].keys() == answer["compressors"].keys()
        for name, found in answer["strategy"].items():
            if answer["compressors"][name]["fixed_size"]:
                assert found["hook"] == found["strategy"], name
            else:  # parameters lie in another order within the bucket
                assert found["hook"] == pytest.approx(found["strategy"], rel=0.03), name


def test_fp16_learns_as_with_torchs_hook(ranks: list[dict[str, Any]]) -> None:
    for answer in ranks:
        ours, theirs = answer["torch"]["fp16"]
        assert ours == pytest.approx(theirs, abs=1e-4)


def test_powersgd_learns_as_with_torchs_hook_from_the_same_start(ranks: list[dict[str, Any]]) -> None:
    for answer in ranks:
        ours, theirs, at_once = answer["torch"]["powersgd"]
        assert ours == pytest.approx(theirs, abs=1e-4)
        assert max(abs(one - other) for one, other in zip(at_once, theirs, strict=True)) > 1e-2
    sent, at_once = (sum(answer["torch"]["sent"][place] for answer in ranks) for place in range(2))
    world_size, layout = len(ranks), Layout(((160, 16), (160,), (160, 160), (160,), (160, 160), (160,), (4, 160), (4,)))
    dense, compressed = (
        PowerSGD(rank=2, start_step=start).sent_bytes(layout, world_size, Route.OWN) for start in (1, 0)
    )
    assert at_once == 20 * compressed and sent == 3 * dense + 17 * compressed


@pytest.fixture(scope="module")
def several() -> list[dict[str, Any]]:
    compressors = ["topk", "efsignsgd", "powersgd", "randomk", "int8"]
    return [json.loads(out) for out in _ranks(HERE / "several_models.py", 2, *compressors, environment={})]


def test_one_hook_trains_several_models_as_one_hook_each_does(several: list[dict[str, Any]]) -> None:
    """In turns, and with one backward for both, of which the buckets come mixed."""
    for answer in several:
        assert len(answer["differences"]) == 5
        assert all(found == [0, 0] for found in answer["differences"].values()), answer["differences"]


def test_a_model_over_some_ranks_is_refused(several: list[dict[str, Any]]) -> None:
    expected = (
        "RunError: ddp_hook averages over all 2 ranks of the default process group, and this model's group has 1:"
        " give DistributedDataParallel no process_group"
    )
    for answer in several:
        assert all(answer[way].startswith(expected) for way in ("alone", "state")), answer
        assert answer["everybody"] == "reduced"


def test_models_that_share_parameters_are_refused(several: list[dict[str, Any]]) -> None:
    for answer in several:
        assert answer["tied"].startswith("RunError: ddp_hook: two models share the parameters of a bucket")


def test_ranks_that_ask_for_different_things_are_told(ranks: list[dict[str, Any]]) -> None:
    last = ", ".join(str(rank) for rank in range(1, len(ranks)))
    assert ranks[0]["disagree"] == (
        f"CollectiveError: rank 0: what is asked of compressor topk differs from that of rank {last}"
    )
    assert ranks[1]["disagree"].endswith("rank 1: what is asked of compressor topk differs from that of rank 0")


def test_gradients_it_cannot_carry_are_refused(ranks: list[dict[str, Any]]) -> None:
    for answer in ranks:
        expected = "RunError: ddp_hook reduces dense float32 gradients on CPUs, found torch.float64 on cpu"
        assert answer["refuse"] == expected


def test_in_a_run_it_takes_the_runs_compressor_and_tells_what_it_sends(tmp_path: Path) -> None:
    spec = make_spec(compressor="topk", workers=3, route="two_shot")
    heard: dict[int, list[dict[str, Any]]] = {0: [], 1: [], 2: []}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(tmp_path / "s.sock"))
        server.listen(3)
        threads = [threading.Thread(target=_play_run, args=(server.accept, spec.to_json(), heard)) for _ in heard]
        for thread in threads:
            thread.start()
        common = {"LONGHAUL_SOCKET": str(tmp_path / "s.sock")}
        environment = {rank: {**common, "LONGHAUL_NODE": str(rank)} for rank in heard}
        try:
            outputs = _ranks(HERE / "told.py", 3, environment=environment)
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
    layout = Layout(((21, 50), (21,)))
    alpha_s, beta_s_byte = spec.topology.slowest_hop
    codec = with_feedback(build_parts(spec).compressor)
    assert choose_route(codec, layout, 3, alpha_s=alpha_s, beta_s_byte=beta_s_byte) is Route.TWO_SHOT
    for rank, messages in heard.items():
        hook = messages.pop(0)
        assert (hook["event"], hook["rank"], hook["name"]) == ("hook", rank, "topk")
        assert (hook["target"], hook["params"]) == (spec.compressor.target, spec.compressor.params)
        assert [(m["event"], m["rank"], m["elements"]) for m in messages] == [("payload", rank, 1071)] * 4
        assert sum(m["payload_bytes"] for m in messages) == int(outputs[rank])
    declared = codec.sent_bytes(layout, 3, Route.TWO_SHOT)
    assert declared != codec.sent_bytes(layout, 3, Route.GATHER)
    assert [sum(m["payload_bytes"] for m in step) for step in zip(*heard.values(), strict=True)] == [declared] * 4


def _play_run(accept: Any, spec: dict[str, Any], heard: dict[int, list[dict[str, Any]]]) -> None:
    try:
        connection = accept()[0]
    except OSError:  # the script did not come; its own log says why
        return
    with connection:
        channel = Channel(connection)
        rank = int((channel.receive() or {})["node"])
        address = {"interface": "lo", "master_address": "127.0.0.1", "master_port": 1}
        channel.send_welcome(Welcome(spec=spec, rank=rank, world_size=3, **address))
        heard[rank] += channel.messages()


def _torchrun(script: str, **environment: str) -> list[list[float]]:
    """Of both ranks the losses of the epochs."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    with port_of_ones_own() as port:
        command += [f"--master-port={port}", script, "--epochs", "2"]
        done = subprocess.run(
            command,
            cwd=SCRIPTS,
            env={**_environment(), **environment},
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    # Both write to one pipe, so that their lines may run into each other.
    found = re.findall(r"rank (\d) epoch (\d) loss (\d\.\d{4})", done.stdout)
    assert len(found) == 4, done.stdout
    return [[float(loss) for r, _, loss in sorted(found) if r == str(rank)] for rank in range(2)]


def test_a_script_in_the_shape_of_a_tutorial_runs_as_it_is() -> None:
    # Started as in a run: with torch alone such a script aborts at one exit in thirty.
    for losses in _torchrun("plain_ddp.py", PYTHONPATH=str(ROOT / "testbed" / "worker" / "script" / "startup")):
        assert losses[0] > 1 and losses[1] < 0.5


def test_two_lines_more_compress_it() -> None:
    for losses in _torchrun("ddp_with_compressor.py"):
        assert losses[0] > 1 and losses[1] < 0.9
    plain, ours = (
        (SCRIPTS / name).read_text().partition("import argparse")[2].splitlines()
        for name in ("plain_ddp.py", "ddp_with_compressor.py")
    )
    assert [line.strip() for line in ours if line and line not in plain] == [
        "from testbed.worker import ddp_hook",
        'model.register_comm_hook(None, ddp_hook("topk", density=0.01))',
    ]
    assert [line for line in plain if line not in ours] == []
