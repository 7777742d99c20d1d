"""What every strategy owes: it trains with every compressor or refuses it. Strategies are those of
`experiments/conf/strategy`, compressors those of `experiments/conf/compressor`."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache
from typing import Any

import pytest
import torch

from testbed.core.errors import InputError
from testbed.worker.plugins import compressor_catalogue
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import HANG_S, STRATEGIES, make_spec
from tests.distributed.trainings import Answers, Case, play

COMPRESSORS = compressor_catalogue.names()
STRONG = ("int8", "topk", "powersgd")
"""Of which a few steps with the small model tell that they compress, and that what is lost is little."""
PARTITIONS = "testbed.worker.data.partitions"
PARAMS: dict[str, dict[str, Any]] = {
    "local_sgd": {"sync_every": 2},
    "diloco": {"sync_every": 2},
    "streaming_diloco": {"sync_every": 4, "fragments": 2, "overlap_steps": 1},
    "ddp": {"collective": "ring", "bucket_size": "8 KiB"},
    "dear": {"collective": "ring", "bucket_size": "8 KiB"},
    "slamb": {"sync_every": 2},
    "parameter_server": {"local_steps": 2},
    "federated": {"learning_rate": 0.5},
    "fedbuff": {"size": 1, "learning_rate": 0.5, "partition": {"_target_": f"{PARTITIONS}.Dirichlet", "alpha": 100.0}},
    "gossip": {"local_steps": 2},
    "hybrid": {"pp": 1},
    **{name: {"factor_every": 2, "inverse_every": 2} for name in STRATEGIES if name.endswith("kfac")},
}
"""So that a short training has exchanges, and `dear` the sums of `ddp`."""
WHOLE = ("fedbuff",)
"""Of which half of what is sent, models, goes down uncompressed."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # as workers have, so that sums are taken in the same order


def _given(strategy: str, compressor: str = "none", **given: Any) -> dict[str, Any]:
    params = PARAMS.get(strategy, {}) | given.pop("strategy_params", {})
    return {"strategy": strategy, "compressor": compressor, "strategy_params": params, **given}


@cache
def _refusal(strategy: str, compressor: str) -> str:
    """Empty where it is none."""
    try:
        build_parts(make_spec(workers=2, **_given(strategy, compressor)))
    except InputError as error:
        return str(error)
    return ""


def _kinds() -> list[list[str]]:
    """Compressors by the traits that strategies treat in ways of their own."""
    kinds: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for name in COMPRESSORS:
        part = compressor_catalogue.part(name)
        traits = compressor_catalogue.built(part.target, part.params).traits
        exchange = "own" if traits.own_rounds else "sum" if traits.sum_dtype else "gather"
        kinds[exchange, traits.fixed_size, traits.owns].append(name)
    return list(kinds.values())


def _sample() -> set[tuple[str, str]]:
    """Of each kind of compressor one with each strategy, another one with the next; and all without compression."""
    drawn = {(one, kind[place % len(kind)]) for kind in _kinds() for place, one in enumerate(STRATEGIES)}
    return drawn | {(strategy, "none") for strategy in STRATEGIES}


CASE_S = 1.5
"""Seconds of a training after which all of them hang; alone one takes 0.1 to 0.2."""
PRODUCT = [(strategy, compressor) for strategy in STRATEGIES for compressor in COMPRESSORS]
SAMPLE = _sample()


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Of the pairs whose tests were chosen, and of what they are held against."""
    chosen = {
        item.callspec.id
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    }
    pairs = {pair for pair in PRODUCT if "-".join(pair) in chosen}
    pairs |= {(strategy, "none") for strategy in ("ddp", *(strategy for strategy, _ in pairs))}
    cases = [Case(name=" ".join(pair), spec=_given(*pair)) for pair in sorted(pairs) if not _refusal(*pair)]
    return play(cases, 2, tmp_path_factory.mktemp("trained"), HANG_S + CASE_S * len(cases))


@pytest.mark.timeout(2 * HANG_S + CASE_S * len(PRODUCT))  # the first waits for all trainings
@pytest.mark.parametrize(
    ("strategy", "compressor"),
    [
        pytest.param(*pair, id="-".join(pair), marks=pytest.mark.tier("test") if pair in SAMPLE else ())
        for pair in PRODUCT
    ],
)
def test_every_strategy_trains_with_a_compressor_or_refuses_it(strategy: str, compressor: str, found: Answers) -> None:
    """Refused is what was asked for, by the names of both, before anything is built."""
    if refusal := _refusal(strategy, compressor):
        target = make_spec(compressor=compressor).compressor.target.rpartition(".")[2]
        assert f"strategy={strategy}" in refusal and "use " in refusal
        assert target in refusal or f"={compressor}:" in refusal
        assert compressor != "none"
        return
    answers = [answer[f"{strategy} {compressor}"] for answer in found]
    assert len({answer["crc32"] for answer in answers}) == 1
    first, last = (sum(answer["losses"][step] or 0 for answer in answers) for step in (0, -1))  # a server has none
    assert math.isfinite(last) and last < 1.2 * first
    sent, uncompressed, dense = (
        sum(answer[name]["sent"] for answer in found)
        for name in (f"{strategy} {compressor}", f"{strategy} none", "ddp none")
    )
    beside = max(0, uncompressed - dense)  # what second-order methods send is not compressed
    assert beside < sent <= beside + 1.1 * dense
    if compressor == "none":
        assert last < 0.95 * first and sent <= uncompressed
    elif compressor in STRONG:
        # a hundredth of the entries of so small buckets is a few numbers
        assert (
            last < (0.98 if compressor == "topk" else 0.95) * first
            and sent <= beside + (0.8 if strategy in WHOLE else 0.6) * dense
        )
