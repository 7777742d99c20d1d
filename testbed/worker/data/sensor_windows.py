"""The windows of workload `sensors`: readings of devices, sound ones and such with a fault, made by a fixed seed.

Every machine that has the pinned NumPy makes the same: what is drawn comes from one counter-based generator, all
arithmetic is that of IEEE 754 without a function of the system's library, and readings are rounded to whole numbers.
"""

from __future__ import annotations

import functools
import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SENSORS, STEPS, TYPES = 4, 32, 6
"""Of a device, of a window, and of devices."""
TRAIN_WINDOWS, SOUND_WINDOWS, FAULTY_WINDOWS = 6000, 2000, 500
"""To train on, to evaluate on, and with each kind of fault to evaluate on."""
FAULTS = ("spike", "stuck", "frequency", "drift")
UNIT = 1000
"""By which readings are multiplied before they are rounded."""

_HARMONICS = 3
_SEED = 1

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Readings = NDArray[np.int16]


class SensorWindows(NamedTuple):
    """Readings [n, SENSORS, STEPS], in 1/UNIT."""

    train: Readings
    train_types: Integers
    """[n]: of the device."""
    sound: Readings
    faulty: Readings
    """As many of each of `FAULTS`, in their order."""
    sha256: str
    """Of all of it."""


class Types(NamedTuple):
    """What a type of device does while it is sound."""

    period: Floats
    """[TYPES], in steps."""
    strength: Floats
    """[TYPES, SENSORS, _HARMONICS]."""
    shift: Floats
    """Of each harmonic, in its own turns, [TYPES, SENSORS, _HARMONICS]."""
    level: Floats
    """[TYPES, SENSORS]."""


@functools.cache
def sensor_windows() -> SensorWindows:
    random = np.random.Generator(np.random.Philox(_SEED))
    types = _types(random)
    train_types = random.integers(0, TYPES, TRAIN_WINDOWS)
    train = _windows(types, train_types, None, random)
    sound = _windows(types, random.integers(0, TYPES, SOUND_WINDOWS), None, random)
    faulty = np.concatenate(
        [_windows(types, random.integers(0, TYPES, FAULTY_WINDOWS), fault, random) for fault in FAULTS]
    )
    digest = hashlib.sha256()
    for part in (train, train_types, sound, faulty):
        digest.update(part.astype("<i2").tobytes())
    return SensorWindows(train, train_types, sound, faulty, digest.hexdigest())


def _types(random: np.random.Generator) -> Types:
    size = (TYPES, SENSORS, _HARMONICS)
    fading = 1 / np.arange(1, _HARMONICS + 1)
    return Types(
        period=random.uniform(9, 24, TYPES),
        strength=random.uniform(0.3, 1, size) * fading,
        shift=random.random(size),
        level=random.uniform(-0.5, 0.5, (TYPES, SENSORS)),
    )


def _windows(types: Types, chosen: Integers, fault: str | None, random: np.random.Generator) -> Readings:
    """One window of a device of each of the types `chosen`."""
    size = len(chosen)
    steps = np.arange(STEPS, dtype=np.float64)
    turns_a_step = 1 / (types.period[chosen] * random.uniform(0.95, 1.05, size))
    elapsed = np.broadcast_to(steps, (size, STEPS))
    if fault == "frequency":
        elapsed = _changed_pace(elapsed, random)
    turns = random.random((size, 1)) + elapsed * turns_a_step[:, None]
    values = np.zeros((size, SENSORS, STEPS))
    for harmonic in range(_HARMONICS):
        angle = (harmonic + 1) * turns[:, None, :] + types.shift[chosen, :, harmonic, None]
        values += types.strength[chosen, :, harmonic, None] * _sine(angle)
    values *= random.uniform(0.7, 1.3, (size, 1, 1))
    values += types.level[chosen][:, :, None] + random.uniform(-0.3, 0.3, (size, SENSORS, 1)) * (steps / STEPS)
    # two draws: a triangle is near enough to a bell
    values += 0.1 * (random.random(values.shape) - random.random(values.shape))
    if fault is not None and fault in _SENSOR_FAULTS:
        place = np.arange(size), random.integers(0, SENSORS, size)
        values[place] = _SENSOR_FAULTS[fault](values[place], random)
    return np.rint(values * UNIT).astype(np.int16)


def _sine(turns: Floats) -> Floats:
    """Of so many turns by Bhaskara's fraction, off by 0.002 at most: parabolas, which take no function of a library."""
    half = 2 * (turns - np.floor(turns))
    part = half - np.floor(half)
    hill = part * (1 - part)
    return np.where(half < 1, 16, -16) * hill / (5 - 4 * hill)


def _changed_pace(elapsed: Floats, random: np.random.Generator) -> Floats:
    """From a moment in the first half on all sensors are slower or faster."""
    size = len(elapsed)
    since = np.maximum(elapsed - random.integers(2, STEPS // 2, size)[:, None], 0)
    slower, faster = random.uniform(0.5, 0.75, size), random.uniform(1.35, 2, size)
    return elapsed + since * (np.where(random.random(size) < 0.5, slower, faster) - 1)[:, None]


def _spiked(values: Floats, random: np.random.Generator) -> Floats:
    """One reading is too high or too low."""
    size = len(values)
    values[np.arange(size), random.integers(0, STEPS, size)] += _either_way(0.7, 2, size, random)
    return values


def _stuck(values: Floats, random: np.random.Generator) -> Floats:
    """A reading is repeated for a quarter to half of the window."""
    size, steps = len(values), np.arange(STEPS)
    first = random.integers(0, STEPS // 2, size)
    last = first + random.integers(STEPS // 4, STEPS // 2 + 1, size)
    repeats = (steps >= first[:, None]) & (steps <= last[:, None])
    return np.where(repeats, values[np.arange(size), first][:, None], values)


def _drifting(values: Floats, random: np.random.Generator) -> Floats:
    """From a moment in the first half on readings go away from what they should be, evenly."""
    size = len(values)
    first = random.integers(0, STEPS // 2, size)[:, None]
    share = np.maximum(np.arange(STEPS) - first, 0) / (STEPS - first)
    return values + share * _either_way(0.5, 1.5, size, random)[:, None]


def _either_way(least: float, most: float, size: int, random: np.random.Generator) -> Floats:
    return random.uniform(least, most, size) * (1 - 2 * random.integers(0, 2, size))


_SENSOR_FAULTS = {"spike": _spiked, "stuck": _stuck, "drift": _drifting}
"""Of one sensor; a changed frequency is the device's."""
