"""Distributed K-FAC over real ranks: the same steps as one process, in the bytes that the closed forms say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from testbed.core.costs.kfac_plan import broadcast_bytes, in_order
from testbed.core.costs.kfac_variants import GRADIENTS, INVERSES
from testbed.core.device.factored_layer import FactoredLayer
from testbed.core.errors import InputError
from testbed.worker.methods.kfac.kronecker_factors import dimensions
from testbed.worker.profile.step_times import measure
from testbed.worker.training.parts import build_parts
from tests.distributed.harness import make_spec, part
from tests.distributed.trainings import Answers, Case, gradient, parameters, play

SAMPLES, STEPS = 32, 4
SMALL = {"_target_": "tests.distributed.small_model.SmallModel"}
NAMES = {"d": "dkfac", "mpd": "mpd_kfac", "spd": "spd_kfac", "pad": "pad_kfac", "dp": "dp_kfac"}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "d": ("d", {}),
    "mpd": ("mpd", {}),
    "spd": ("spd", {}),
    "spd, layer by layer": ("spd", {"factor_fusion": "layers", "collective": "ring"}),
    "spd over regions": ("spd", {"collective": "hierarchical"}),
    "pad": ("pad", {}),
    "pad with gradients": ("pad", {"results": "gradients"}),
    "pad by size": ("pad", {"factor_fusion": "size", "factor_group_size": "2 KiB"}),
}
"""That make the steps of one process: variant, and parameters."""
KINDS: dict[str, dict[str, Any]] = {
    "cholesky": {},
    # the product's smallest eigenvalue is its damping, by which rounding in the sums of factors is multiplied
    "eigen": {"inverse": "eigen", "damping": 3.0},
    "rarely": {"factor_every": 2, "inverse_every": 4},
    "in parts": {"accumulate": 2},
}
RANKS = (1, 4)


def _case(way: str, kind: str, ranks: int, **given: Any) -> Case:
    variant, params = WAYS[way]
    spec = {
        "strategy": NAMES[variant],
        "batch_size": SAMPLES // ranks,
        "strategy_params": params | KINDS[kind],
        "workload_params": SMALL,
    }
    return Case(name=f"{way} {kind}", spec=spec | given, end=STEPS)


def _cases(ranks: int) -> list[Case]:
    ways = [way for way in WAYS if ranks > 1 or way == "d"]
    chosen = [_case(way, "cholesky", ranks) for way in ways]
    return chosen + [_case(way, kind, ranks) for kind in list(KINDS)[1:] for way in ("d", "pad", "pad with gradients")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    return {ranks: tmp_path_factory.mktemp(f"of {ranks}") for ranks in RANKS}


@pytest.fixture(scope="module")
def answers(folders: dict[int, Path]) -> dict[int, Answers]:
    return {ranks: play(_cases(ranks), ranks, folders[ranks]) for ranks in RANKS}


@pytest.mark.parametrize("case", [case.name for case in _cases(4)])
def test_four_ranks_precondition_as_one_process_does(
    case: str, answers: dict[int, Answers], folders: dict[int, Path]
) -> None:
    """With a quarter of its batch each: also after steps that have used what earlier ones kept."""
    assert len({answer[case]["crc32"] for answer in answers[4]}) == 1
    alone = f"d {case.rpartition(' ')[2]}" if not case.endswith("in parts") else "d in parts"
    ours, single = (gradient(folders[4], case), gradient(folders[1], alone))
    assert float((ours - single).norm()) <= 1e-5 * float(single.norm())
    difference = (parameters(folders[4], case) - parameters(folders[1], alone)).abs().max()
    assert float(difference) <= 1e-5


PACED: dict[str, Any] = {"step_s": 0.02, "work_s": {"factor": 0.1, "inverse": 0.2}}
"""An inverse takes so long that those of large factors are sent."""


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    """On a device that is known, of which plans and the clock go: layers, factors and inverses have their times."""
    folder, cases = tmp_path_factory.mktemp("paced"), []
    for variant in ("spd", "pad"):
        for parts in (1, 4):
            case = _case(variant, "cholesky", 4)
            params = {**case.spec["strategy_params"], "accumulate": parts}
            spec = {**case.spec, "strategy_params": params, "route": "sum"}
            asked = dataclasses.replace(make_spec(workers=4, **spec), device=part("device", "paced", PACED))
            device = build_parts(asked).device.profile(measure(asked))
            cases.append(dataclasses.replace(case, name=f"{variant} in {parts}", spec=spec, profile=device.to_json()))
    return folder, play(cases, 4, folder)


@pytest.mark.parametrize("name", ["spd in 1", "spd in 4", "pad in 1", "pad in 4"])
def test_a_plan_by_the_devices_times_makes_the_same_steps(
    name: str, paced: tuple[Path, Answers], answers: dict[int, Answers], folders: dict[int, Path]
) -> None:
    """Some inverses are everyone's, others are sent; some factors leave while others are computed."""
    del answers  # made for what one process has, in `folders`
    folder, found = paced
    (plan,) = found[0][name]["notes"]
    owners = {factor["owner"] for factor in plan["factors"]}
    assert len(plan["groups"]) > 1
    assert None in owners and len(owners) > 2 if name.startswith("spd") else owners == set(range(4))
    assert len({answer[name]["crc32"] for answer in found}) == 1
    ours, single = gradient(folder, name), gradient(folders[1], "d cholesky")
    assert float((ours - single).norm()) <= 2e-5 * float(single.norm())


STEPPED = {
    "d": ("d", "nothing"),
    "mpd": ("mpd", INVERSES),
    "spd": ("spd", INVERSES),
    "pad": ("pad", INVERSES),
    "pad with gradients": ("pad", GRADIENTS),
    "dp": ("dp", GRADIENTS),
}
"""Variant and results, by the name of a step."""


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """One step of each, and of `ddp`, by three ranks."""
    cases = [Case(name="ddp", spec={"strategy": "ddp", "workload_params": SMALL}, end=1)]
    for name, (variant, results) in STEPPED.items():
        params = {"results": results} if variant == "pad" else {}
        spec = {"strategy": NAMES[variant], "strategy_params": params, "workload_params": SMALL}
        cases.append(Case(name=name, spec=spec, end=1))
    return play(cases, 3, tmp_path_factory.mktemp("stepped"))


@pytest.mark.parametrize("name", STEPPED)
def test_bytes_of_a_step_are_those_of_the_closed_forms(name: str, stepped: Answers) -> None:
    """Beside `ddp`'s: all-reduced or reduced triangles, and what comes back."""
    ranks, (variant, results) = 3, STEPPED[name]
    (plan,) = (note for note in stepped[0][name]["notes"] if note["event"] == "plan")
    found, plain = (sum(answer[case]["sent"] for answer in stepped) for case in (name, "ddp"))
    model = build_parts(make_spec(workload_params=SMALL)).workload.model(0)
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    sizes = {name: dimensions(module) for name, module in layers.items()}
    factors = in_order([FactoredLayer(name, *size) for name, size in sizes.items()])
    assert [factor["name"] for factor in plan["factors"]] == [factor.name for factor in factors]
    ways = {"d": 2, "mpd": 2, "spd": 2, "pad": 1}  # a sum that comes back, and one that stays with the owner
    expected = ways.get(variant, 0) * broadcast_bytes(sum(factor.elements for factor in factors), ranks)
    if results == GRADIENTS:
        expected += broadcast_bytes(sum(a * g for a, g in sizes.values()), ranks)
    elif results == INVERSES:
        owned = [one.elements for one, told in zip(factors, plan["factors"], strict=True) if told["owner"] is not None]
        expected += broadcast_bytes(sum(owned), ranks)
    traces = 2 * (ranks - 1) * 4 * len(factors) if name == "pad" else 0
    assert found - plain == expected + traces


def test_owners_that_know_their_own_samples_alone_take_another_course(tmp_path: Path) -> None:
    """DP-KFAC: said so, and all ranks take it together."""
    given = {"batch_size": 16, "workload_params": SMALL}
    cases = [Case(name=v, spec={"strategy": NAMES[v], **given}, end=2) for v in ("dp", "pad")]
    answers = play(cases, 2, tmp_path)
    assert len({answer["dp"]["crc32"] for answer in answers}) == 1
    difference = (gradient(tmp_path, "dp") - gradient(tmp_path, "pad")).norm() / gradient(tmp_path, "pad").norm()
    assert float(difference) > 1e-3


@pytest.mark.parametrize(("strategy", "compressor"), [("spd_kfac", "int8"), ("spd_kfac", "bf16"), ("pad_kfac", "bf16")])
def test_factors_pass_through_a_compressor(strategy: str, compressor: str, tmp_path: Path) -> None:
    cases = [
        Case(name=compress, spec={"strategy": strategy, "compressor": compressor, "strategy_params": params}, end=3)
        for compress in ("gradients", "factors", "all")
        for params in [{"compress": compress}]
    ]
    answers = play(cases, 2, tmp_path)
    sent = {case.name: sum(answer[case.name]["sent"] for answer in answers) for case in cases}
    for case in cases:
        assert len({answer[case.name]["crc32"] for answer in answers}) == 1
        first, last = (sum(answer[case.name]["losses"][step] for answer in answers) for step in (0, -1))
        assert last < first
    assert sent["all"] < sent["factors"] and sent["all"] < sent["gradients"]


@pytest.mark.parametrize(
    ("strategy", "compressor", "params", "said"),
    [
        ("pad_kfac", "int8", {"compress": "factors"}, "summed on their way"),
        ("spd_kfac", "topk", {"compress": "all"}, "makes up for in later steps"),
        ("dp_kfac", "bf16", {"compress": "all"}, "do not travel"),
        ("pad_kfac", "onebit_adam", {}, "takes over its work"),
        ("spd_kfac", "none", {"results": "gradients"}, "variant spd sends back inverses"),
        ("spd_kfac", "none", {"factor_every": 2, "inverse_every": 3}, "inverse_every=3"),
        ("spd_kfac", "none", {"damping": 0, "decay": 0, "kl_clip": -1}, "damping"),
        ("spd_kfac", "none", {"factor_fusion": "some", "inverse": "lu", "variant": "x"}, "factor_fusion=some"),
    ],
)
def test_what_cannot_be_is_refused_by_name(strategy: str, compressor: str, params: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        build_parts(make_spec(strategy, compressor, strategy_params=params))
    assert said in str(refused.value)
    for name in ("damping", "decay", "kl_clip", "inverse", "variant") if len(params) == 3 else ():
        assert (name in params) == (f"{name}=" in str(refused.value))
