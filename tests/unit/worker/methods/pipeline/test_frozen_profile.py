from __future__ import annotations

import dataclasses

import pytest

from testbed.core.device.codecs.work import CodecTimes
from testbed.worker.methods.freezing.freeze_policy import frozen_profile
from tests.unit.worker.interfaces.test_switched_profile import layer, profile


def still(name: str, forward_s: float) -> object:
    return dataclasses.replace(layer(name, 0, forward_s), backward_s=0.0)


def codec(elements: int) -> CodecTimes:
    return CodecTimes(elements=elements, rounds=(("compress", 1e-3 * elements),))


ALL = [still("a", 0.9), still("b", 1.9), layer("head", 5, 0.5)]
THEN = dataclasses.replace(profile(*ALL, optimizer_s=0.1, codec=(codec(5),)), backward_s=1.0)
BEFORE = profile(layer("a", 10, 1.0), layer("b", 20, 2.0), layer("head", 5, 0.5), switched=THEN, codec=(codec(35),))


def test_each_layer_takes_what_it_does_frozen_or_not() -> None:
    half = frozen_profile(BEFORE, {"a": 0, "b": 20, "head": 5})
    assert [(one.forward_s, one.backward_s) for one in half.layers] == [(0.9, 0.0), (2.0, 4.0), (0.5, 1.0)]
    assert half.forward_s == pytest.approx(BEFORE.forward_s - 0.1)
    assert half.backward_s == pytest.approx(BEFORE.backward_s - 2.0)
    assert half.optimizer_s == pytest.approx(0.1 + (0.4 - 0.1) * 20 / 30)
    assert half.codec_s(5, 0) == pytest.approx(5e-3) and half.codec_s(35, 0) == pytest.approx(35e-3)
    assert half.switched is None


def test_nothing_frozen_is_as_before_and_all_frozen_as_measured() -> None:
    none = frozen_profile(BEFORE, {"a": 10, "b": 20, "head": 5})
    assert (none.forward_s, none.backward_s, none.optimizer_s) == (BEFORE.forward_s, BEFORE.backward_s, 0.4)
    every = frozen_profile(BEFORE, {"a": 0, "b": 0, "head": 5})
    assert every.forward_s == pytest.approx(THEN.forward_s) and every.backward_s == pytest.approx(1.0)
    assert every.optimizer_s == pytest.approx(0.1)


def test_a_profile_of_another_model_is_refused() -> None:
    for wrong in (THEN, dataclasses.replace(BEFORE, layers=BEFORE.layers[:2])):
        with pytest.raises(ValueError, match="no times of the same layers frozen"):
            frozen_profile(wrong, {"a": 0})
