"""What every strategy owes: it trains with compressors or refuses them. Strategies are those of
`experiments/conf/strategy`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from testbed.core.errors import InputError
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import STRATEGIES, make_spec
from tests.distributed.trainings import Answers, Case, play

COMPRESSORS = ("none", "int8", "topk", "powersgd")
PARAMS: dict[str, dict[str, Any]] = {
    "local_sgd": {"sync_every": 2},
    "diloco": {"sync_every": 2},
    "streaming_diloco": {"sync_every": 4, "fragments": 2, "overlap_steps": 1},
    "ddp": {"collective": "ring", "bucket_size": "256 KiB"},
    "dear": {"collective": "ring", "bucket_size": "256 KiB"},
    "slamb": {"sync_every": 2},
    "parameter_server": {"local_steps": 2},
    "fedbuff": {"size": 1},
    "gossip": {"local_steps": 2},
    "hybrid": {"pp": 1},
    **{name: {"factor_every": 2, "inverse_every": 2} for name in STRATEGIES if name.endswith("kfac")},
}
"""So that a short training has exchanges, and `dear` the sums of `ddp`."""
WHOLE = ("fedbuff",)
"""Of which half of what is sent, models, goes down uncompressed."""
OF_ONE_CLASS = ("dkfac", "mpd_kfac", "spd_kfac", "dp_kfac")
"""With `pad_kfac`, which stands for them where what they differ in does not matter."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # as workers have, so that sums are taken in the same order


def _given(strategy: str, compressor: str = "none", **given: Any) -> dict[str, Any]:
    params = PARAMS.get(strategy, {}) | given.pop("strategy_params", {})
    return {"strategy": strategy, "compressor": compressor, "strategy_params": params, **given}


def _refusal(strategy: str, compressor: str) -> str:
    """Empty where it is none."""
    try:
        build_parts(make_spec(workers=2, **_given(strategy, compressor)))
    except InputError as error:
        return str(error)
    return ""


def _compressors(strategy: str) -> tuple[str, ...]:
    return COMPRESSORS[:1] if strategy in OF_ONE_CLASS else COMPRESSORS


@pytest.fixture(scope="module")
def combined(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    pairs = [(strategy, compressor) for strategy in STRATEGIES for compressor in _compressors(strategy)]
    cases = [Case(name=" ".join(pair), spec=_given(*pair)) for pair in pairs if not _refusal(*pair)]
    return play(cases, 2, tmp_path_factory.mktemp("combined"))


@pytest.mark.parametrize(("strategy", "compressor"), [(s, c) for s in STRATEGIES for c in _compressors(s)])
def test_every_strategy_trains_with_a_compressor_or_refuses_it(
    strategy: str, compressor: str, combined: Answers
) -> None:
    """Refused is what was asked for, by the names of both, before anything is built."""
    if refusal := _refusal(strategy, compressor):
        target = make_spec(compressor=compressor).compressor.target.rpartition(".")[2]
        assert f"strategy={strategy}" in refusal and target in refusal and "use " in refusal
        assert compressor != "none"
        return
    answers = [answer[f"{strategy} {compressor}"] for answer in combined]
    assert len({answer["crc32"] for answer in answers}) == 1
    first, last = (sum(answer["losses"][step] or 0 for answer in answers) for step in (0, -1))  # a server has none
    assert last < 0.95 * first
    sent, uncompressed, dense = (
        sum(answer[name]["sent"] for answer in combined)
        for name in (f"{strategy} {compressor}", f"{strategy} none", "ddp none")
    )
    beside = max(0, uncompressed - dense)  # what second-order methods send is not compressed
    share = 0.8 if strategy in WHOLE else 0.6
    assert beside < sent <= beside + (dense if compressor == "none" else share * dense)
