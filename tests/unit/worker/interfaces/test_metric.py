"""A target lies within the range of its metric."""

from __future__ import annotations

import pytest

from testbed.worker.interfaces.workload import Metric


@pytest.mark.parametrize("name", ["accuracy", "roc_auc", "top5_accuracy", "f1", "macro_f1", "val_acc", "mean_iou"])
def test_a_share_is_from_0_to_1_and_a_percentage_is_understood(name: str) -> None:
    metric = Metric(name=name, target=0.5)
    for target in (0.0, 0.5, 1.0):
        assert metric.target_fault(target) is None
    assert metric.target_fault(90.0) == f"target=90: {name} is from 0 to 1; did you mean target=0.9?"
    assert str(metric.target_fault(1.0000001)).startswith(f"target=1.0000001: {name} is from 0 to 1")
    assert metric.target_fault(97.5) == f"target=97.5: {name} is from 0 to 1; did you mean target=0.975?"
    for target in (-0.1, 1000.0):
        assert metric.target_fault(target) == f"target={target:g}: {name} is from 0 to 1; give a value that it can have"


@pytest.mark.parametrize(
    ("least", "most", "allowed"), [(0.0, None, "at least 0"), (None, 5.0, "at most 5"), (1.0, 9.0, "from 1 to 9")]
)
def test_a_range_of_its_own(least: float | None, most: float | None, allowed: str) -> None:
    metric = Metric(name="bits_per_byte", target=2.8, higher_is_better=False, least=least, most=most)
    assert metric.target_fault(2.5) is None
    assert metric.target_fault(-1.0 if least is not None else 6.0) == (
        f"target={-1 if least is not None else 6}: bits_per_byte is {allowed}; give a value that it can have"
    )


@pytest.mark.parametrize("name", ["loss", "perplexity", "bleu", "accumulated", "space"])
def test_one_of_another_name_has_no_range(name: str) -> None:
    faults = [Metric(name=name, target=0.5).target_fault(target) for target in (-5.0, 90.0)]
    assert faults == [None, None]
