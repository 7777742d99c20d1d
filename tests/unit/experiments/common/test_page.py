"""Regions of pages."""

from __future__ import annotations

import pytest

from experiments.common.page import between


def test_a_table_replaces_what_was_between_its_markers_and_nothing_else() -> None:
    page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n<!-- y: begin -->\n<!-- y: end -->\n"
    assert between(page, "x", "new") == page.replace("old", "new")
    with pytest.raises(ValueError, match="z"):
        between(page, "z", "new")
