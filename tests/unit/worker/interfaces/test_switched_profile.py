from __future__ import annotations

import dataclasses
import json

import pytest

from testbed.core.device.device import Native, Paced, Profiled
from testbed.core.device.profile import LayerTimes, Profile
from testbed.core.errors import InputError
from testbed.worker.interfaces.transform import fitted


def layer(name: str, parameters: int, forward_s: float) -> LayerTimes:
    return LayerTimes(
        name=name, parameters=parameters, forward_s=forward_s, backward_s=2 * forward_s, forward_flop=1e9 * forward_s
    )


def profile(*layers: LayerTimes, **given: object) -> Profile:
    forward_s = sum(one.forward_s for one in layers)
    fields = {"workload": "w", "compressor": "c", "batch_size": 1, "optimizer_s": 0.4, "cpu_step_s": 1.0, **given}
    return Profile(layers=layers, forward_s=forward_s + 0.1, backward_s=2 * forward_s, **fields)  # type: ignore[arg-type]


AFTER = profile(layer("a", 10, 1.0), layer("b.u", 40, 0.4), layer("b.v", 20, 0.2))
BEFORE = profile(layer("a", 10, 1.0), layer("b", 400, 4.0), switched=AFTER)


def test_factors_of_another_rank_take_in_proportion_and_what_stayed_full_takes_what_it_did() -> None:
    same = fitted(BEFORE, {"a": 10, "b.u": 40, "b.v": 20})
    assert same == AFTER
    twice = fitted(BEFORE, {"a": 10, "b.u": 80, "b.v": 40})
    assert [one.forward_s for one in twice.layers] == [1.0, 0.8, 0.4]
    assert twice.forward_s == pytest.approx(0.1 + 2.2) and twice.backward_s == pytest.approx(4.4)
    assert twice.optimizer_s == pytest.approx(0.4 * 130 / 70)
    full = fitted(BEFORE, {"a": 10, "b": 400})
    assert (full.forward_s, full.layers[1].backward_s) == (pytest.approx(5.1), 8.0)
    with pytest.raises(ValueError, match="layer c: the profile has no times of it"):
        fitted(BEFORE, {"c": 1})
    with pytest.raises(ValueError, match="no times of a model that has changed"):
        fitted(AFTER, {"a": 10})


def test_a_profile_of_both_models_is_kept_whole() -> None:
    assert Profile.from_json(json.loads(json.dumps(BEFORE.to_json()))) == BEFORE


def test_devices_take_for_the_changed_model_what_they_can_say() -> None:
    assert Native().whole_profile(BEFORE) == BEFORE
    paced = Paced(step_s=5.0).whole_profile(BEFORE)
    assert paced.switched is not None
    # 1.6 of 5 GFLOP are left
    assert paced.switched.forward_s + paced.switched.backward_s == pytest.approx(5.0 * 1.6 / 5.0)
    assert paced.forward_s + paced.backward_s == pytest.approx(5.0)
    assert Paced(step_s=5.0).whole_profile(AFTER).switched is None
    without = dataclasses.replace(
        BEFORE, layers=tuple(dataclasses.replace(la, forward_flop=0.0) for la in BEFORE.layers)
    )
    with pytest.raises(InputError, match="no FLOPs"):
        Paced(step_s=5.0).switched(without, AFTER)
    with pytest.raises(InputError, match="says nothing of the model that a transform leaves"):
        Profiled(file="p.json").switched(BEFORE, AFTER)
