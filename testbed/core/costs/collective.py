"""Costs of a collective over a network of regions: its bytes over each pair of regions, and its seconds.

The model is that of `costs`: a message takes its path's one-way delay, and then what the busiest link of its path needs
for all bytes that cross it at the same time. A ring takes its slowest message in each round. Rank r is `nodes[r]`.

What `size_bytes` is depends on the kind: of an all_reduce the tensor, of an all_gather one rank's payload, of an
all_to_all one rank's whole input, of a chain the tensor.

| all_reduce            | all ranks send | from region a to region b, of B bytes, R regions, m_a workers |
|---|---|---|
| gloo, ring            | 2(P-1) B       | 2(P-1)/P B for each pair of ranks that are neighbours in the ring |
| two_shot              | 2(P-1) B       | 2 m_a m_b / P B |
| hierarchical          | 2(P-1) B       | 2(R-1)/R B to the next region, none to others |
| hierarchical_two_shot | 2(P-1) B       | 2/R B |
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from testbed.core.spec import connections
from testbed.core.spec.paths import IDEAL_HOSTS, DirectedLink, Hosts, Path, Paths, concurrent_s, longest_s
from testbed.core.spec.topology import Topology

ALGORITHMS = ("gloo", "ring", "hierarchical", "hierarchical_two_shot", "two_shot")
KINDS = ("all_reduce", "all_gather", "all_to_all")
NCCL_RING, GLOO_RING = connections.NCCL_RING, "gloo_ring"
"""Names of rings that send as libraries do and carry sums alone; `auto` does not choose them. One has NCCL's sockets,
the other gloo's segments one by one, so that a host's time for each can pass.

Their bytes are those of `ring` and `gloo`, and so are their times here; `core.costs.sockets` has more of them."""
SUMS_ALONE = (NCCL_RING, GLOO_RING)
CHAIN = "chain"
"""A pipelined broadcast from one rank along all others, or a reduction to it: no choice of algorithms."""
CHAIN_CHUNK_BYTES, MIN_CHUNK_BYTES = 128 * 1024, 16 * 1024
MAX_CHAIN_CHUNKS = 256
Pairs = dict[tuple[str, str], float]


def part_sizes(count: int, parts: int) -> list[int]:
    """`count` elements in `parts`, equal within one."""
    base, extra = divmod(count, parts)
    return [base + (index < extra) for index in range(parts)]


def chain_chunks(size_bytes: float, ranks: int, chunk_bytes: float = CHAIN_CHUNK_BYTES) -> int:
    """In how many chunks a chain of `ranks` passes on a tensor; two ranks have nobody to pass it on to."""
    if ranks <= 2:
        return 1
    return min(MAX_CHAIN_CHUNKS, max(1, int(size_bytes // chunk_bytes)))


def scaled_chunk_bytes(scale: float) -> float:
    """Return the chunk of a chain whose tensors and links are `scale` times smaller.

    As many are under way then, down to where their messages would cost more than that."""
    return max(MIN_CHUNK_BYTES, CHAIN_CHUNK_BYTES / scale)


def ranks_of_regions(topology: Topology) -> list[list[int]]:
    """The ranks of each region that has any; the first leads."""
    ranks: dict[str, list[int]] = {region: [] for region in topology.regions}
    for rank, node in enumerate(topology.nodes):
        ranks[node.region].append(rank)
    return [members for members in ranks.values() if members]


def cheapest(kind: str, size_bytes: float, topology: Topology) -> str:
    """The algorithm of least time; of equal ones the first of `ALGORITHMS`."""
    return min(ALGORITHMS, key=lambda algorithm: seconds(algorithm, kind, size_bytes, topology))


def sent_bytes(algorithm: str, kind: str, size_bytes: float, topology: Topology) -> float:
    """Return what all ranks together send."""
    algorithm = _form(algorithm)
    world_size = len(topology.nodes)
    if kind == "all_reduce":
        return 2 * (world_size - 1) * size_bytes
    if kind in ("all_to_all", CHAIN):
        return (world_size - 1) * size_bytes
    members = world_size - len(ranks_of_regions(topology))
    return (world_size * (world_size - 1) + (members if _is_hierarchical(algorithm) else 0)) * size_bytes


def wan_bytes(algorithm: str, kind: str, size_bytes: float, topology: Topology) -> Pairs:
    """Bytes from the workers of one region to those of another, by (from, to); pairs without any are absent."""
    algorithm = _form(algorithm)
    world_size, regions = len(topology.nodes), ranks_of_regions(topology)
    sent: Pairs = defaultdict(float)

    def name(ranks: Sequence[int]) -> str:
        return topology.nodes[ranks[0]].region

    def every_pair(of: Sequence[Sequence[int]], share: float, each_to: bool = True) -> None:
        for a in of:
            for b in of:
                if a is not b:
                    sent[name(a), name(b)] += len(a) * (len(b) if each_to else 1) * share

    if _is_hierarchical(algorithm) and kind == "all_gather":
        every_pair(regions, size_bytes, each_to=False)
    elif algorithm == "hierarchical" and kind == "all_reduce":
        _around([ranks[0] for ranks in regions], 2 * (len(regions) - 1) / len(regions) * size_bytes, topology, sent)
    elif algorithm == "hierarchical_two_shot" and kind == "all_reduce":
        every_pair([ranks[:1] for ranks in regions], 2 / len(regions) * size_bytes)
    elif kind == "all_to_all":
        every_pair(regions, size_bytes / world_size)
    elif algorithm == "two_shot":
        every_pair(regions, (2 / world_size if kind == "all_reduce" else 1) * size_bytes)
    else:
        share = 2 * (world_size - 1) / world_size if kind == "all_reduce" else world_size - 1
        # gloo sends to the rank before.
        _around(range(world_size), share * size_bytes, topology, sent, -1 if algorithm == "gloo" else 1)
    return {pair: size for pair, size in sent.items() if size}


def link_bytes(pairs: Pairs, topology: Topology) -> dict[tuple[str, str], float]:
    """Bytes over each WAN link, by (its name, the region they leave), of what regions send to each other."""
    paths, load = _paths(topology), defaultdict[tuple[str, str], float](float)
    for (source, target), size in pairs.items():
        for link in paths.between_regions(source, target):
            load[link.name, link.source] += size
    return dict(load)


def seconds(algorithm: str, kind: str, size_bytes: float, topology: Topology, *, hosts: Hosts = IDEAL_HOSTS) -> float:
    """From the moment at which all ranks call it to the one at which the last has its result."""
    algorithm = _form(algorithm)
    if algorithm not in ALGORITHMS or kind not in KINDS:
        raise ValueError(f"{algorithm} {kind}: known are {', '.join(ALGORITHMS)} of {', '.join(KINDS)}")
    network, world_size = _Network(topology, hosts), len(topology.nodes)
    if world_size < 2:
        return 0.0
    everyone = range(world_size)
    if kind == "all_to_all":
        return network.all_pairs_s(size_bytes / world_size)
    if _is_hierarchical(algorithm):
        return network.hierarchical_s(kind, size_bytes, direct=kind == "all_gather" or algorithm != "hierarchical")
    if algorithm == "two_shot":
        shots, each = (2, size_bytes / world_size) if kind == "all_reduce" else (1, size_bytes)
        return shots * network.all_pairs_s(each, shots)
    towards = -1 if algorithm == "gloo" else 1
    if kind == "all_reduce":
        return network.ring_s(everyone, size_bytes / world_size, 2 * (world_size - 1), towards)
    return network.ring_s(everyone, size_bytes, world_size - 1, towards)


def chain_seconds(
    size_bytes: float, topology: Topology, *, hosts: Hosts = IDEAL_HOSTS, chunk_bytes: float = CHAIN_CHUNK_BYTES
) -> float:
    """Return the time of a broadcast from rank 0 along a chain of all ranks, in chunks, or of a reduction to it."""
    ranks = range(len(topology.nodes))
    return _Network(topology, hosts).chain_s(ranks, size_bytes, reducing=False, chunk_bytes=chunk_bytes)


class _Network:
    def __init__(self, topology: Topology, hosts: Hosts) -> None:
        self.paths, self.regions, self.hosts = _paths(topology), ranks_of_regions(topology), hosts

    def ring_s(self, ranks: Sequence[int], size_bytes: float, rounds: int, towards: int = 1) -> float:
        """
        Args:
            size_bytes: of one message.
        """
        if len(ranks) < 2:
            return 0.0
        targets = [ranks[(index + towards) % len(ranks)] for index in range(len(ranks))]
        messages = [(self.paths.between(a, b), size_bytes) for a, b in zip(ranks, targets, strict=True)]
        return rounds * concurrent_s(messages, self.hosts, rounds)

    def all_pairs_s(self, size_bytes: float, rounds: int = 1) -> float:
        """Every rank sends `size_bytes` to every other one, all at once: links carry sums, so regions suffice.

        Args:
            rounds: how many times all this happens; what is returned is for once.
        """
        load, paths, world_size = defaultdict[DirectedLink, float](float), set[Path](), sum(map(len, self.regions))
        if size_bytes <= 0:
            return 0.0
        for ranks in self.regions:
            for rank in ranks:
                for link in (*self.paths.up(rank), *self.paths.down(rank)):
                    load[link] = (world_size - 1) * size_bytes
        for a in self.regions:
            for b in self.regions:
                if a is b and len(a) < 2:
                    continue
                wan = self.paths.between_regions(self.paths.regions[a[0]], self.paths.regions[b[0]])
                for link in wan:
                    load[link] += len(a) * len(b) * size_bytes
                ups, downs = {self.paths.up(rank) for rank in a}, {self.paths.down(rank) for rank in b}
                paths |= {(*_slowest(ups), *wan, *_slowest(downs))}
        hosts = replace(self.hosts, message_s=self.hosts.message_s * (world_size - 1))
        return longest_s([(path, size_bytes) for path in paths], load, hosts, rounds)

    def direct_s(self, ranks: Sequence[int], sizes: Sequence[float], rounds: int = 1) -> float:
        """Each of `ranks` sends its size to each other one, all at once; `rounds` as in `all_pairs_s`."""
        pairs = [
            (self.paths.between(a, b), size) for a, size in zip(ranks, sizes, strict=True) for b in ranks if a != b
        ]
        return concurrent_s(pairs, self.hosts, rounds)

    def chains_s(self, size_bytes: float, *, reducing: bool) -> float:
        """Inside all regions at once, from or towards their leaders."""
        return max(self.chain_s(ranks, size_bytes, reducing) for ranks in self.regions)

    def hierarchical_s(self, kind: str, size_bytes: float, direct: bool) -> float:
        leaders = [ranks[0] for ranks in self.regions]
        count, world_size = len(leaders), sum(map(len, self.regions))
        if kind == "all_gather":
            gather = [(self.paths.between(rank, r[0]), size_bytes) for r in self.regions for rank in r[1:]]
            bundles = [len(ranks) * size_bytes for ranks in self.regions]
            inside_s = self.chains_s(world_size * size_bytes, reducing=False)
            return concurrent_s(gather, self.hosts) + self.direct_s(leaders, bundles) + inside_s
        if direct:
            across_s = 2 * self.direct_s(leaders, [size_bytes / count] * count, rounds=2)
        else:
            across_s = self.ring_s(leaders, size_bytes / count, 2 * (count - 1))
        return self.chains_s(size_bytes, reducing=True) + across_s + self.chains_s(size_bytes, reducing=False)

    def chain_s(
        self, ranks: Sequence[int], size_bytes: float, reducing: bool, chunk_bytes: float = CHAIN_CHUNK_BYTES
    ) -> float:
        if len(ranks) < 2 or size_bytes <= 0:
            return 0.0
        chunks = chain_chunks(size_bytes, len(ranks), chunk_bytes)
        order = list(reversed(ranks)) if reducing else list(ranks)
        hops = [(self.paths.between(a, b), size_bytes / chunks) for a, b in itertools.pairwise(order)]
        return (len(ranks) - 2 + chunks) * concurrent_s(hops, self.hosts, chunks)


def _form(algorithm: str) -> str:
    """Return the algorithm whose closed form is used."""
    return {NCCL_RING: "ring", GLOO_RING: "gloo"}.get(algorithm, algorithm)


def _is_hierarchical(algorithm: str) -> bool:
    return algorithm.startswith("hierarchical")


def _around(ranks: Sequence[int], size_bytes: float, topology: Topology, sent: Pairs, towards: int = 1) -> None:
    """Charge every pair of neighbours in a ring that lie in two regions."""
    for index, rank in enumerate(ranks):
        a, b = topology.nodes[rank].region, topology.nodes[ranks[(index + towards) % len(ranks)]].region
        if a != b:
            sent[a, b] += size_bytes


def _slowest(paths: set[Path]) -> Path:
    return min(paths, key=lambda path: min((link.profile.rate_bit_s for link in path), default=float("inf")))


@functools.lru_cache(maxsize=64)
def _paths(topology: Topology) -> Paths:
    return Paths(topology)


MESSAGE_CPU_S, OWN_MESSAGE_CPU_S = 2e-4, 1e-3
"""Seconds of a core for one message of gloo's collectives, and of Longhaul's own, which Python issues.

Both ends are in it, two bridges, two routers and the delay line. Estimated from what whole runs used: one with 64
workers was predicted to keep the cores busy for 26 % of its time, and did for 28 %."""
