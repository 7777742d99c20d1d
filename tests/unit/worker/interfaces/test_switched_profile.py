from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from testbed.core.device.device import Native, Paced
from testbed.core.device.profile import MEASURED, SCALED, LayerTimes, Profile
from testbed.core.device.profiled import Profiled
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


def _on_disk(profile: Profile, folder: Path) -> Profiled:
    path = folder / "p.json"
    path.write_text(json.dumps(profile.to_json()))
    return Profiled(file=str(path))


def test_a_measured_device_takes_as_much_longer_for_changed_layers_as_this_machine_does(tmp_path: Path) -> None:
    """About ten times as fast a device, whose layers share its time otherwise than this machine's."""
    layers = tuple(
        dataclasses.replace(layer, forward_s=layer.forward_s / (10 + number), backward_s=layer.backward_s / 10)
        for number, layer in enumerate(BEFORE.layers)
    )
    fast = dataclasses.replace(BEFORE, layers=layers, forward_s=1.0, backward_s=2.0, optimizer_s=0.5, switched=None)
    found = _on_disk(fast, tmp_path).whole_profile(BEFORE)
    then, here = found.switched, {layer.name: layer for layer in BEFORE.layers}
    assert then is not None and BEFORE.switched is not None
    there = {layer.name: layer for layer in layers}
    for after, changed in zip(BEFORE.switched.layers, then.layers, strict=True):
        name = after.name if after.name in here else after.name.rpartition(".")[0]
        assert changed.parameters == after.parameters
        if here[name].forward_s:
            ratio = after.forward_s / here[name].forward_s
            assert changed.forward_s == pytest.approx(there[name].forward_s * ratio)
    # what is beside layers takes here what it took before
    beside_s = 1.0 - sum(layer.forward_s for layer in layers)
    assert then.forward_s == pytest.approx(beside_s + sum(layer.forward_s for layer in then.layers))
    assert then.basis == SCALED
    assert found.basis == MEASURED  # of the model as it was
    assert found.unknowns == then.unknowns
    assert found.unknowns[-1].startswith("how long layers that a transform changes take (by the ratio")


def test_a_changed_model_that_was_measured_on_the_device_is_taken_as_it_is(tmp_path: Path) -> None:
    assert BEFORE.switched is not None
    measured = dataclasses.replace(BEFORE.switched, forward_s=0.125)
    found = _on_disk(dataclasses.replace(BEFORE, switched=measured), tmp_path).whole_profile(BEFORE)
    assert found.switched is not None
    assert (found.switched.forward_s, found.unknowns) == (0.125, ())


def test_a_layer_that_no_layer_became_is_refused_by_name(tmp_path: Path) -> None:
    assert BEFORE.switched is not None
    strange = dataclasses.replace(BEFORE.switched.layers[0], name="new.u")
    after = dataclasses.replace(BEFORE.switched, layers=(strange, *BEFORE.switched.layers[1:]))
    device = _on_disk(dataclasses.replace(BEFORE, switched=None), tmp_path)
    with pytest.raises(InputError, match=r"the model that the transform leaves has new\.u, which no layer became"):
        device.switched(BEFORE, after)
