from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from testbed.worker.data import sensor_windows as windows
from testbed.worker.data.sensor_windows import FAULTS, FAULTY_WINDOWS, SENSORS, STEPS, TYPES, sensor_windows
from testbed.worker.workloads.sensors import Sensors, roc_auc

SHA256 = "34785dea07cc5dd32260b31cd08f7b3754d263407dee4ec3f71387fde8aa7f41"
"""Of the windows that the docstring speaks of."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_the_windows_are_those_that_were_measured_and_the_spec_is_told() -> None:
    sensor_windows.cache_clear()
    assert Sensors().data_hash() == sensor_windows().sha256 == SHA256


def test_no_window_is_in_two_parts() -> None:
    parts = sensor_windows()
    assert parts.train.shape == (6000, SENSORS, STEPS) and len(parts.sound) == 2000
    assert len(parts.faulty) == len(FAULTS) * FAULTY_WINDOWS == 2000
    everything = [window.tobytes() for part in (parts.train, parts.sound, parts.faulty) for window in part]
    assert len(set(everything)) == len(everything)


def test_sines_are_sines_nearly() -> None:
    turns = np.linspace(-3, 3, 1001)
    assert np.abs(windows._sine(turns) - np.sin(2 * np.pi * turns)).max() < 0.002


def test_a_spike_is_one_reading(random: np.random.Generator) -> None:
    spiked = windows._spiked(np.zeros((200, STEPS)), random)
    assert (np.count_nonzero(spiked, axis=1) == 1).all()
    heights = spiked.sum(axis=1)
    assert np.abs(heights).min() >= 0.7 and np.abs(heights).max() <= 2
    assert 60 < (heights > 0).sum() < 140


def test_a_stuck_sensor_repeats_a_reading(random: np.random.Generator) -> None:
    rising = np.broadcast_to(np.arange(STEPS, dtype=float), (200, STEPS))
    for row in windows._stuck(rising, random):
        (same,) = np.nonzero(row != np.arange(STEPS))
        first, repeats = same[0] - 1, len(same)
        assert STEPS // 4 <= repeats <= STEPS // 2 and first < STEPS // 2
        assert (row[first : first + repeats + 1] == first).all()


def test_a_drift_goes_evenly_one_way(random: np.random.Generator) -> None:
    steps = np.diff(windows._drifting(np.zeros((200, STEPS)), random), axis=1)
    for row in steps:
        (moving,) = np.nonzero(row)
        assert moving[0] < STEPS // 2 and len(moving) == STEPS - 1 - moving[0]
        np.testing.assert_allclose(row[moving], row[-1])
    assert 60 < (steps[:, -1] > 0).sum() < 140


def test_a_changed_pace_keeps_its_phase(random: np.random.Generator) -> None:
    elapsed = np.broadcast_to(np.arange(STEPS), (200, STEPS))
    pace = np.diff(windows._changed_pace(elapsed, random), axis=1)
    assert (pace[:, :2] == 1).all()
    last = pace[:, -1]
    assert ((last >= 0.5) & (last <= 0.75) | (last >= 1.35) & (last <= 2)).all()
    for row in pace:
        np.testing.assert_allclose(row, np.where(np.abs(row - 1) < 0.01, 1, row[-1]))
    assert 60 < (last > 1).sum() < 140


def test_faults_but_frequencies_are_of_one_sensor() -> None:
    """Where the same draws make a window without the fault, what differs is the fault."""
    types = windows._types(np.random.default_rng(1))
    chosen = np.arange(60) % TYPES

    def made(fault: str | None) -> np.ndarray:
        return windows._windows(types, chosen, fault, np.random.default_rng(2))

    for fault in ("spike", "stuck", "drift"):
        differs = (made(fault) != made(None)).any(axis=2).sum(axis=1)
        assert (differs == 1).all(), fault
    assert ((np.diff(made("stuck"), axis=2) == 0).sum(axis=(1, 2)) >= STEPS // 4).all()
    assert (made("frequency") != made(None)).any(axis=2).all()


def test_the_area_is_the_chance_that_a_positive_scores_higher() -> None:
    negatives, positives = torch.randint(0, 9, (70,)).float(), torch.randint(3, 12, (50,)).float()
    wins = [float(p > n) + 0.5 * float(p == n) for p in positives for n in negatives]
    assert roc_auc(negatives, positives) == pytest.approx(sum(wins) / len(wins))
    assert roc_auc(torch.tensor([1.0, 2.0]), torch.tensor([3.0, math.inf])) == 1
    assert roc_auc(torch.ones(4), torch.ones(3)) == 0.5


def test_a_model_that_has_diverged_has_no_area() -> None:
    model = Sensors().model(0)
    with torch.no_grad():
        model[0].bias.fill_(math.nan)
    assert math.isnan(Sensors().evaluate(model))


def test_labels_are_the_types_of_the_devices_by_number() -> None:
    workload = Sensors()
    labels = workload.labels()
    assert labels.dtype == torch.int64 and labels.shape == (workload.samples(),)
    assert (labels.bincount(minlength=TYPES) > 900).all() and len(labels.unique()) == TYPES
    levels = workload.picked(torch.arange(workload.samples())).view(-1, SENSORS, STEPS).mean(dim=2)
    centres = torch.stack([levels[labels == kind].mean(dim=0) for kind in range(TYPES)])
    nearest = torch.cdist(levels, centres).argmin(dim=1)
    assert (nearest == labels).float().mean() > 0.6


def test_a_global_batch_does_not_depend_on_the_number_of_workers() -> None:
    workload, whole = Sensors(), Sensors()
    for step in (0, 46, 47):  # an epoch ends after 46.875 steps
        parts = [workload.batch(step, rank=rank, world_size=4, batch_size=32, seed=7) for rank in range(4)]
        assert torch.equal(torch.cat(parts), whole.batch(step, rank=0, world_size=1, batch_size=128, seed=7))


def test_the_model_follows_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = Sensors().model(5)
    torch.manual_seed(2)
    second = Sensors().model(5)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert sum(p.numel() for p in first.parameters()) == 37_264
    assert not list(first.buffers())
    assert not torch.equal(next(Sensors().model(6).parameters()), next(first.parameters()))


def test_faults_are_found_after_some_steps_and_evaluation_changes_nothing() -> None:
    workload = Sensors()
    model = workload.model(0)
    optimizer = workload.optimizer(model.parameters())
    state = torch.get_rng_state()
    assert 0.4 < workload.evaluate(model) < 0.6
    for step in range(120):
        optimizer.zero_grad()
        workload.loss(model, workload.batch(step, rank=0, world_size=1, batch_size=128, seed=0)).backward()
        optimizer.step()
    before = [p.detach().clone() for p in model.parameters()]
    area = workload.evaluate(model)
    assert 0.85 < area < 0.92
    assert workload.evaluate(model) == area
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_parameters_out_of_range_are_refused_together() -> None:
    with pytest.raises(ValueError, match="learning_rate=0: must be above 0") as caught:
        Sensors(learning_rate=0, momentum=1)
    assert "momentum=1: must be in [0, 1)" in str(caught.value)
