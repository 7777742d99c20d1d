"""Every plug-in that has a file below experiments/conf: asked for by its name it is built, and it does what its kind is
for once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from testbed.core.spec.run_spec import RunSpec
from testbed.orchestrator.config.config import CONF_DIR, resolve
from testbed.worker.training.parts import build_parts
from tests.published_data import require_data

KINDS = ("compressor", "device", "strategy", "topo", "transform", "workload")
NEEDS = {
    "device=dear": ("workload=replay", "batch_size=64"),
    "device=h200": ("workload=replay",),
    "device=paced": ("device.step_s=0.1",),
    "device=rtx2080ti": ("workload=replay",),
    "device=v100": ("workload=replay", "batch_size=96"),
    "strategy=kv_transfer": ("workload=recall", "workers=2"),
    "strategy=pipetransformer": ("workload=tiny_vit", "transform=freeze", "workers=4"),
    "transform=freeze": ("workload=tiny_vit",),
    "workload=recall": ("strategy=kv_transfer", "workers=2"),
    "workload=replay": ("device=paced", "device.step_s=0.1"),
    "workload=tiny_bert": ("workload.pretrained=false",),
    "workload=tiny_vit": ("workload.pretrained=false",),
}
"""Words that a plug-in cannot be asked for without."""
WITH_FILES = ("device=profile", "workload=cifar10", "workload=script")
"""Need a file of the user's."""
FETCHED = ("workload=fashion", "workload=speakers", "workload=texts")
"""Need data that are fetched; without a network their tests are skipped, and first run by `make test-all`."""
OF_FONTS = ("workload=glyphs", "workload=tiny_vit")
"""Read images of Debian 12's fonts; pipetransformer does so when it is built."""
WITHOUT_COMPRESSOR = ("strategy=kv_transfer", "strategy=torch_ddp")
PROGRAMS = ("workload=hand", "workload=script")
"""Run in nodes as they are; sessions and scripts on emulated networks test them."""


def _named(*kinds: str) -> list[str]:
    return [f"{kind}={path.stem}" for kind in kinds for path in sorted((CONF_DIR / kind).glob("*.yaml"))]


def _marked(asked: str, *, is_read: bool = False) -> Any:
    reads_fonts = asked == "strategy=pipetransformer" or (is_read and asked in OF_FONTS)
    marks = [pytest.mark.fonts] * reads_fonts + [pytest.mark.tier("all")] * (is_read and asked in FETCHED)
    return pytest.param(asked, marks=marks)


def _spec(asked: str) -> RunSpec:
    return resolve([asked, *NEEDS.get(asked, ()), "dilation=1"]).spec


@pytest.mark.parametrize(
    "asked",
    [_marked(one) for one in _named(*KINDS) if one not in (*WITH_FILES, *PROGRAMS)],
)
def test_it_is_built_by_its_name(asked: str) -> None:
    spec = _spec(asked)
    parts = build_parts(spec)
    kind, _, name = asked.partition("=")
    if kind == "topo":
        assert spec.topology.name and len(spec.topology.nodes) == spec.workers >= 1
    else:
        part = getattr(spec, kind)
        assert part.name == name and part.target.endswith(f".{type(getattr(parts, kind)).__name__}")


@pytest.mark.parametrize("asked", [_marked(one) for one in _named("strategy")])
def test_strategies_carry_compressors_but_for_two(asked: str) -> None:
    assert len(_named("strategy")) == 20 and set(WITHOUT_COMPRESSOR) < set(_named("strategy"))
    assert build_parts(_spec(asked)).strategy.carries_compressor == (asked not in WITHOUT_COMPRESSOR)


@pytest.mark.parametrize(
    ("words", "carries"),
    [
        (("strategy=parameter_server", "strategy.uplink.codec=raw"), True),
        (("strategy=parameter_server", "strategy.uplink.codec=raw", "strategy.downlink.codec=raw"), False),
        (("strategy=fedbuff", "strategy.uplink.codec=fp16"), False),
    ],
)
def test_a_server_whose_codecs_are_named_carries_no_compressor(words: tuple[str, ...], carries: bool) -> None:
    assert build_parts(resolve([*words, "dilation=1"]).spec).strategy.carries_compressor is carries


@pytest.mark.parametrize(
    "asked",
    [_marked(one, is_read=True) for one in _named("workload") if one not in (*WITH_FILES, *PROGRAMS)],
)
def test_a_workload_has_a_batch_a_loss_and_gradients(asked: str) -> None:
    workload = build_parts(_spec(asked)).workload
    if asked in FETCHED:
        require_data(workload)
    if not workload.computes or asked == "workload=recall":  # its model is given, and is asked for texts alone
        return
    model = workload.model(0)
    loss = workload.loss(model, workload.batch(0, rank=0, world_size=2, batch_size=4, seed=0))
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.requires_grad]
    assert torch.isfinite(loss) and loss > 0
    assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in gradients)
    assert any(gradient.any() for gradient in gradients if gradient is not None)
    workload.optimizer(model.parameters()).step()
