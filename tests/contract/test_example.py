"""The compressor in the README is one."""

from __future__ import annotations

import re

import torch

from compressors import base, payload
from compressors.base import Compressor, Layout, Route
from tests.contract.catalogue import CONF, LAYOUT, gradients
from tests.contract.lockstep import reduce_all


def test_the_example_of_the_readme_reduces() -> None:
    readme = (CONF.parents[2] / "README.md").read_text()
    found = re.search(r"```python\n(class Half\(Compressor\):\n.*?)```", readme, re.DOTALL)
    assert found is not None
    names = {"torch": torch, **vars(base), **vars(payload)}
    exec(found[1], names)
    ranks = [names["Half"]() for _ in range(2)]
    assert isinstance(ranks[0], Compressor)
    tensors = gradients(LAYOUT, 2)
    means, _, sent = reduce_all(ranks, tensors, LAYOUT, Route.REDUCE_SUM)
    assert torch.allclose(means[0], torch.stack(tensors).mean(dim=0), rtol=1e-2, atol=1e-2)
    assert sent == ranks[0].sent_bytes(Layout(LAYOUT.shapes), 2, Route.REDUCE_SUM) == 2 * 2 * LAYOUT.numel
