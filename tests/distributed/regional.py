"""One rank of the test of our own collectives.

Arguments: rank, workers of each region ("3,1"), port, what to do ("check,train").
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time

import torch

from compressors.base.compressor import Exchange
from testbed.core.costs.collective import ALGORITHMS, GLOO_RING
from testbed.worker.communication.collectives import chain, ring
from testbed.worker.communication.collectives.algorithm_selection import Collectives
from testbed.worker.communication.communicator import Communicator
from testbed.worker.communication.pending import CollectiveError
from testbed.worker.interfaces.workload import parameters_crc32
from testbed.worker.training.loop import Training
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import TIMEOUT_S, make_spec
from tests.unit.worker.communication.collectives.test_collectives import topology

rank, port, task = int(sys.argv[1]), int(sys.argv[3]), sys.argv[4]
network = topology(tuple(map(int, sys.argv[2].split(","))))
P = len(network.nodes)
torch.set_num_threads(1)
timeout_s = 30.0 if task == "die" else TIMEOUT_S  # who is no neighbour of the dead one waits for it
comm = Communicator.connect(
    rank=rank, world_size=P, address="127.0.0.1", port=port, interface="lo", timeout_s=timeout_s
)
answer: dict[str, object] = {}


def taken() -> int:
    sent, comm.payload_bytes = comm.payload_bytes, 0
    return sent


def given(numel: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(numel, generator=torch.Generator().manual_seed(rank)) * 10).to(dtype)


def check() -> None:
    for name in (*ALGORITHMS, GLOO_RING, "auto"):
        collectives = Collectives(comm, network, name)
        taken()
        for numel in (0, 1, 3, 120, 200_003):
            for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
                tensor = given(numel, dtype)
                (total,) = collectives.run(Exchange(kind="all_reduce", data=[tensor])).wait()
                answer[f"{name} {dtype} {numel}"] = (total.double().sum().item(), total.view(torch.uint8).sum().item())
                if dtype is torch.float32 and name != "auto":
                    answer[f"bytes {name} {numel}"] = taken()
                    answer[f"values {name} {numel}"] = total[:200].tolist()
                taken()
        if name == GLOO_RING:  # which carries sums alone
            continue
        sizes = [100 * (r % 3) for r in range(P)]
        mine = torch.full((sizes[rank],), rank, dtype=torch.uint8)
        gathered = collectives.run(Exchange(kind="all_gather", data=[mine], sizes=sizes)).wait()
        assert [piece.tolist() for piece in gathered] == [[r] * size for r, size in enumerate(sizes)]
        data = [torch.full((rank + to,), rank, dtype=torch.uint8) for to in range(P)]
        exchange = Exchange(kind="all_to_all", data=data, sizes=[source + rank for source in range(P)])
        received = collectives.run(exchange).wait()
        assert [piece.tolist() for piece in received] == [[source] * (source + rank) for source in range(P)]


def overlap() -> None:
    """Many under way while this thread computes, gloo's own among them; waited for in another order."""
    pending = []
    for index in range(12):
        name = ALGORITHMS[index % len(ALGORITHMS)]
        tensor = torch.full((30_000 + index,), float(index + rank))
        pending.append(Collectives(comm, network, name).run(Exchange(kind="all_reduce", data=[tensor])))
        torch.ones(200, 200, requires_grad=True).matmul(torch.ones(200, 200)).sum().backward()
    answer["many"] = [p.wait()[0].unique().tolist() for p in reversed(pending)][::-1]
    answer["seconds"] = comm.stopwatch.take_s()


def roots() -> None:
    for root in range(P):
        tensor = torch.full((100_000,), float(rank + 1))
        comm.submit("reduce", lambda peers, t=tensor, r=root: [chain.reduce(peers, t, r), t][1:]).wait()
        copied = torch.full((100_000,), float(rank))
        comm.submit("broadcast", lambda peers, t=copied, r=root: [chain.broadcast(peers, t, r), t][1:]).wait()
        assert (copied == root).all()
        assert rank != root or (tensor == P * (P + 1) / 2).all()
    taken()
    tensor = torch.arange(float(1000 * P)) * (rank + 1)
    (part,) = comm.submit("reduce_scatter", lambda peers: [ring.reduce_scatter(peers, tensor)]).wait()
    assert torch.equal(part, (torch.arange(float(1000 * P)) * (P * (P + 1) / 2)).split(1000)[rank])
    answer["half"] = taken()


def train() -> None:
    """Steps of `ddp` with the run's own parts, over each algorithm in turn."""
    for name in (*ALGORITHMS, "auto", "hierarchical/wan", "hierarchical_two_shot/wan"):
        several = name in ("gloo", "hierarchical", "hierarchical/wan")
        for compressor in ("none", "topk", "sz3", "powersgd") if several else ("none",):
            params = {"collective": name, "bucket_size": "64 KiB", "compress": "all"}
            if name.endswith("/wan"):
                params |= {"collective": name.removesuffix("/wan"), "compress": "wan"}
            given = {"compressor": compressor, "strategy_params": params, "steps": 6}
            spec = dataclasses.replace(make_spec(workers=P, **given), topology=network)
            parts = build_parts(spec)
            training = Training(spec, parts, comm, lambda message: None)
            parts.strategy.bind(training.context)
            taken()
            losses = []
            for step in range(6):
                batch = parts.workload.batch(step, rank=rank, world_size=P, batch_size=32, seed=0)
                losses.append(parts.strategy.step(batch, step).loss)
            answer[f"losses {name} {compressor}"] = losses
            answer[f"sent {name} {compressor}"] = taken()
            answer[f"crc {name} {compressor}"] = parameters_crc32(training.model)
            answer[f"dense {name} {compressor}"] = 6 * training.describe().dense_bytes_step


def die() -> None:
    collectives = Collectives(comm, network, "hierarchical")
    exchange = Exchange(kind="all_reduce", data=[torch.ones(2_000_000)])
    collectives.run(exchange).wait()
    comm.step = 7
    started_s = time.monotonic()
    if rank == P - 1:
        pending = collectives.run(Exchange(kind="all_reduce", data=[torch.ones(2_000_000)]))
        time.sleep(0.002)
        os._exit(9)
    try:
        for _ in range(20):
            pending = [collectives.run(Exchange(kind="all_reduce", data=[torch.ones(2_000_000)])) for _ in range(3)]
            for each in pending:
                each.wait()
    except CollectiveError as error:
        answer["error"], answer["after_s"] = str(error), time.monotonic() - started_s
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


tasks = {"check": check, "overlap": overlap, "roots": roots, "train": train, "die": die}
for each_task in task.split(","):
    tasks[each_task]()
comm.close()
sys.stdout.write(json.dumps(answer))
