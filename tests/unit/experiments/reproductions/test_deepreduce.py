"""DeepReduce's arms: what they send by plan, beside the volumes that were published."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import pytest

from compressors.base.compressor import Compressor, Layout, Route
from compressors.base.routes import choose_route, route_sent_bytes
from experiments.reproductions.deepreduce.declaration import (
    ARMS,
    CASES,
    CLAIMED_SHARE,
    DENSITY,
    FALSE_POSITIVE_RATE,
    RATE,
    SYSTEM,
    WORKERS,
    sent_mb,
)
from experiments.reproductions.runs import ask_all
from testbed.core.record.run_directory import RunDir, write_json
from testbed.core.record.summary import empty_summary
from testbed.worker.plugins import compressor_catalogue as catalogue_compressor_catalogue
from testbed.worker.workloads.glyphs import Glyphs
from topologies import lan

LAYOUT = Layout(tuple(tuple(p.shape) for p in Glyphs().model(0).parameters()))


@pytest.fixture(scope="module")
def codecs() -> dict[str, Compressor]:
    asked = ask_all([trial for trial in SYSTEM.trials(True) if "seed=0" in trial.overrides])
    parts = {one.trial.arm: one.spec.compressor for one in asked}
    return {arm: catalogue_compressor_catalogue.built(part.target, part.params) for arm, part in parts.items()}


def _share(codec: Compressor) -> float:
    """Of what dense gradients take, in an exchange."""
    alpha_s, beta_s_byte = lan.build(workers=WORKERS, lan_rate=RATE).slowest_hop
    route = choose_route(codec, LAYOUT, WORKERS, alpha_s=alpha_s, beta_s_byte=beta_s_byte)
    assert route in (Route.TWO_SHOT, Route.REDUCE_SUM)  # so all send as often
    return route_sent_bytes(codec, LAYOUT, WORKERS, route, 1) / (2 * (WORKERS - 1) * 4 * LAYOUT.numel)


def test_bloom_filters_send_the_published_volumes(codecs: dict[str, Compressor]) -> None:
    assert _share(codecs["dense"]) == 1
    for arm in ("top-10 %", "BF-P0", "QSGD + BF-P0"):
        assert _share(codecs[arm]) == pytest.approx(CLAIMED_SHARE[arm], rel=0.025)
    assert 3 * _share(codecs["QSGD + BF-P0"]) < _share(codecs["top-10 %"])
    assert SYSTEM.claimed == 3.27


def test_the_rate_of_false_positives_follows_from_the_published_volumes() -> None:
    """Tensors of one dimension are sent dense there: what top-10 % has beyond its 64 bits an entry."""
    others = CLAIMED_SHARE["top-10 %"] - 64 / 32 * DENSITY
    carried = 1 + FALSE_POSITIVE_RATE * (1 / DENSITY - 1)
    bits = 32 * carried + math.log2(1 / FALSE_POSITIVE_RATE) / math.log(2)
    assert bits / 32 * DENSITY + others == pytest.approx(CLAIMED_SHARE["BF-P0"], rel=0.002)
    # values fitted by polynomials, indices of 32 bits in the order of values
    assert DENSITY + others == pytest.approx(CLAIMED_SHARE["Fit-Poly"], rel=0.01)


def test_rice_codes_take_fewer_bytes_than_the_filter(codecs: dict[str, Compressor]) -> None:
    for rice, bloom in (("Rice", "BF-P0"), ("QSGD + Rice", "QSGD + BF-P0")):
        assert _share(codecs[rice]) < 0.85 * _share(codecs[bloom])
    assert _share(codecs["Fit-Poly + Rice"]) < 0.6 * CLAIMED_SHARE["Fit-Poly"]


def test_runs_of_a_case_differ_in_their_compressor_alone() -> None:
    shared = defaultdict(set)
    for trial in SYSTEM.trials(True):
        before = [word for word in trial.overrides[: -len(ARMS[trial.arm])] if not word.startswith("seed=")]
        shared[trial.case].add(tuple(before))
    assert list(shared) == list(CASES) and all(len(each) == 1 for each in shared.values())


def test_the_figure_is_what_one_worker_sends(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "a-run")
    summary = empty_summary() | {"workers": 4}
    write_json(run.summary, summary)
    assert sent_mb(run) is None
    summary["bytes"] |= {"payload": 638_448_000, "dense": 3_192_240_000}
    write_json(run.summary, summary)
    assert sent_mb(run) == pytest.approx(159.612)
