from __future__ import annotations

import dataclasses
import re

import pytest

from compressors.base import alpha_beta
from testbed.core.models.catalogue import find_model
from testbed.orchestrator.run.questions.replay_needs import WORKER_BYTES, ReplayNeeds

GIB = 2**30


def needs(model: str = "bert-large", workers: int = 64, scale: float = 1, **given: object) -> ReplayNeeds:
    elements = round(find_model(model).parameters / scale)
    sent = alpha_beta.all_reduce_sent_bytes(4 * elements, workers)
    keeps = {"feedback": False, "owns_parameters": False}
    plain = ReplayNeeds(model=model, workers=workers, elements=elements, sent_bytes=sent, steps=20, **keeps)
    return dataclasses.replace(plain, **given)


def test_memory_is_refused_with_the_figure_and_what_would_fit() -> None:
    (fault,) = needs().memory_faults(24 * GIB)
    assert fault == (
        "workload=replay model=bert-large workers=64 needs 87.78 GB of memory, this machine has 25.77 GB:"
        " workers=18 or scale=3.7 would do"
    )
    assert list(needs(workers=18).memory_faults(24 * GIB)) == []
    assert list(needs(workers=19).memory_faults(24 * GIB))
    assert list(needs(scale=3.7).memory_faults(24 * GIB)) == []


def test_what_is_proposed_fits_and_one_more_would_not() -> None:
    for model in ("vgg19", "gpt2-xl", "resnet152"):
        for memory in (4 * GIB, 24 * GIB):
            for fault in needs(model, workers=200).memory_faults(memory):
                if found := re.search(r"workers=(\d+) (?:or|would)", fault):
                    assert not list(needs(model, workers=int(found[1])).memory_faults(memory))
                    assert list(needs(model, workers=int(found[1]) + 1).memory_faults(memory))
                if found := re.search(r"scale=([\d.e+]+)", fault):
                    assert not list(needs(model, workers=200, scale=float(found[1])).memory_faults(memory))


def test_residuals_count() -> None:
    plain = needs("resnet50", 2)
    assert plain.tensor_bytes == 4 * 25_557_032
    assert dataclasses.replace(plain, feedback=True).tensor_bytes == 8 * 25_557_032
    assert dataclasses.replace(plain, feedback=True, owns_parameters=True).tensor_bytes == 24 * 25_557_032


def test_no_scale_is_proposed_where_workers_alone_are_too_many() -> None:
    (fault,) = needs("resnet18", workers=64).memory_faults(64 * WORKER_BYTES // 2)
    assert "workers=11 would do" in fault and "scale" not in fault
    (fault,) = needs().memory_faults(GIB // 10)
    assert fault.endswith("too little for any worker")


def test_time_is_refused_with_the_figure() -> None:
    asked = {"compute_s": 0.5, "dilation": 2.0, "most_wall_s": 3600.0}
    ring = needs(workers=4)
    # 335,141,888 * 4 * 1.5 bytes at 100 Mbit/s
    assert ring.exchange_s(1e8) == pytest.approx(160.87, abs=0.01)
    (long,) = ring.time_faults(1e8, **asked)
    assert "steps=20 dilation=2 takes at least 1.79 h, more than the 1 h asked for: steps=11 would do" in long
    assert list(ring.time_faults(1e9, **asked)) == []
    assert ring.wall_s(1e12, compute_s=0.5, dilation=2.0) == 20.0
