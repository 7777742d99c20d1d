"""The compressors that docs/compressors.md and CONTRIBUTING.md show are ones, and lawful."""

from __future__ import annotations

import re

import pytest
import torch

from compressors.base import compressor, payload
from compressors.base.compressor import Compressor
from testbed.worker.laws.cases.registry import Case
from testbed.worker.laws.judge import judge
from tests.contract.catalogue import CONF

ROOT = CONF.parents[2]


def _shown(page: str, name: str) -> type[Compressor]:
    """As a reader would have it; the shorter one leaves out the imports."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    (text,) = (block for block in blocks if f"class {name}(Compressor):" in block)
    names = {"torch": torch, **vars(compressor), **vars(payload), "__name__": "shown"}
    exec(text, names)
    shown: type[Compressor] = names[name]
    return shown


@pytest.mark.parametrize(("page", "name"), [("docs/compressors.md", "Short"), ("CONTRIBUTING.md", "Signs")])
def test_what_is_shown_breaks_no_law(page: str, name: str) -> None:
    shown = _shown(page, name)
    rows = list(judge(Case(name.lower(), lambda **params: shown(**params))))  # type: ignore[arg-type]
    assert [f"{row.law}: {row.detail}" for row in rows if row.outcome == "broken"] == []
    assert sum(row.outcome == "holds" for row in rows) > 25
