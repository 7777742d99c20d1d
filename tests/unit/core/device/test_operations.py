from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from testbed.core.device import Measured, Profiled, Published, operations
from testbed.core.device.factored_layer import CHOLESKY, EIGEN, FACTOR, PRODUCT
from testbed.core.device.operations import operations_of
from testbed.core.device.profile import SCALED, Profile, WorkTimes
from testbed.core.device.timelines.published import PUBLISHED
from testbed.core.errors import InputError
from tests.unit.core.device.replays import replay

KNOWN = operations.operations("h200")
ROWS = KNOWN.factor_rows


def factor(dimension: int, rows: int = ROWS) -> WorkTimes:
    flop = 2.0 * rows * dimension**2
    return WorkTimes(name=f"a{dimension}", kind="factor", size=dimension, seconds=0.0, flop=flop, operation=FACTOR)


def inverse(dimension: int, form: str = CHOLESKY) -> WorkTimes:
    return WorkTimes(
        name=f"inverse of a{dimension}", kind="inverse", size=dimension, seconds=0.0, flop=1.0, operation=form
    )


def working(model: str, batch_size: int, *work: WorkTimes) -> Profile:
    return dataclasses.replace(replay(model, batch_size), work=work)


def seconds(profile: Profile) -> list[float]:
    return [piece.seconds for piece in profile.work]


@pytest.mark.parametrize(("form", "most"), [(CHOLESKY, 0.0117), (EIGEN, 0.125)])
def test_measured_dimensions_take_what_was_measured(form: str, most: float) -> None:
    for dimension, measured_s in KNOWN.seconds[form]:
        assert KNOWN.piece_s(inverse(dimension, form)) == pytest.approx(measured_s)
    for dimension, measured_s in KNOWN.seconds[FACTOR]:
        assert KNOWN.piece_s(factor(dimension)) == pytest.approx(measured_s)
    assert KNOWN.piece_s(inverse(4608, form)) == pytest.approx(most, rel=0.01)


def test_inverses_grow_less_than_cubically_and_between_two_dimensions_like_a_power() -> None:
    small, middle, large = (KNOWN.inverse_s(CHOLESKY, dimension) for dimension in (1152, 1600, 2048))
    assert small < middle < large
    assert large / small < (2048 / 1152) ** 2
    halfway = KNOWN.inverse_s(CHOLESKY, round((1152 * 2048) ** 0.5))
    assert halfway == pytest.approx((small * large) ** 0.5, rel=1e-3)


def test_below_the_smallest_dimension_an_operation_takes_what_the_smallest_takes_and_is_marked() -> None:
    assert KNOWN.inverse_s(EIGEN, 27) == KNOWN.inverse_s(EIGEN, 64)
    assert list(KNOWN.unknowns([inverse(64)])) == []
    assert any("below 64" in one for one in KNOWN.unknowns([inverse(27)]))
    assert any("interpolated" in one for one in KNOWN.unknowns([inverse(65)]))
    assert any("other than 12,544 rows" in one for one in KNOWN.unknowns([factor(64)]))


def test_factors_of_other_rows_take_what_products_of_as_many_flops_take() -> None:
    assert KNOWN.piece_s(factor(512, rows=ROWS * 4)) == pytest.approx(KNOWN.piece_s(factor(1024)))
    largest = KNOWN.piece_s(factor(4608))
    assert KNOWN.piece_s(factor(4608, rows=ROWS * 3)) == pytest.approx(3 * largest)
    product = WorkTimes(
        name="p", kind="precondition", size=0, seconds=0.0, flop=4 * factor(576).flop, operation=PRODUCT, calls=4
    )
    assert KNOWN.piece_s(product) == pytest.approx(4 * KNOWN.piece_s(factor(576)))


def test_beyond_the_largest_dimension_it_is_refused_by_name() -> None:
    device, work = Measured(accelerator="h200"), (factor(64), factor(6401), inverse(25089), inverse(4608))
    (fault,) = device.validate_work(work)
    assert fault == (
        "device=h200: it has K-FAC's operations of dimensions up to 4,608, and 2 are of larger ones (the largest is"
        " inverse of a25089, of 25,089); use another model, or device=paced, which goes by FLOPs"
    )
    with pytest.raises(InputError, match="up to 4,608"):
        device.profile(working("vgg16", 64, *work))
    assert list(device.validate_work(work[:1])) == []


def test_a_profile_has_the_work_of_the_accelerator() -> None:
    found = Measured(accelerator="h200").profile(working("resnet50", 64, factor(64), inverse(576)))
    assert seconds(found) == pytest.approx([27.4e-6, 670.4e-6], rel=1e-3)
    assert found.provenance["operations"]["measured_on"] == "NVIDIA H200"
    assert found.unknowns == tuple(KNOWN.unknowns(found.work))


def test_another_length_of_a_step_lengthens_the_work_as_much() -> None:
    work = factor(64), inverse(576)
    whole = Measured(accelerator="h200").profile(working("resnet50", 64, *work))
    twice_s = 2 * (whole.forward_s + whole.backward_s)
    found = Measured(accelerator="h200", step_s=twice_s).profile(working("resnet50", 64, *work))
    assert seconds(found) == pytest.approx([2 * one_s for one_s in seconds(whole)])
    assert found.basis == SCALED
    assert found.unknowns[-1] == "how long K-FAC's work takes there (scaled: 2 times as long as on NVIDIA H200)"


def test_published_lengths_of_factors_and_inverses_are_shared_out_as_measured() -> None:
    (length,) = (one for one in PUBLISHED["spd_kfac"].lengths if one.model == "resnet50")
    device, work = Published(source="spd_kfac"), (factor(64), factor(576), inverse(64), inverse(576))
    found = device.profile(working("resnet50", 32, *work))
    by_kind = {kind: [one.seconds for one in found.work if one.kind == kind] for kind in ("factor", "inverse")}
    assert {kind: sum(times) for kind, times in by_kind.items()} == pytest.approx(length.work_s)
    low, high = by_kind["inverse"]
    assert high / low == pytest.approx(KNOWN.inverse_s(CHOLESKY, 576) / KNOWN.inverse_s(CHOLESKY, 64))
    assert "all of kind inverse last 292 ms" in found.unknowns[-1]
    # nothing was published of eigenvectors
    eigen = device.profile(working("resnet50", 32, inverse(576, EIGEN)))
    assert seconds(eigen)[0] > KNOWN.inverse_s(EIGEN, 576)
    assert "last 292 ms" not in eigen.unknowns[-1]


def test_a_timeline_of_ones_own_has_no_operations_and_says_what_has(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(replay("resnet50", 64).to_json()))
    with pytest.raises(InputError, match=r"how long 1 pieces .* device=h200 times K-FAC's, device=paced any by FLOPs"):
        Profiled(file=str(tmp_path / "mine.json")).profile(working("resnet50", 64, factor(64)))


def _with(change: dict[str, Any]) -> dict[str, Any]:
    data = json.loads(json.dumps(KNOWN.to_json()))
    return {**copy.deepcopy(data), **change}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"format": "other"}, '"format" must be "longhaul-operations"'),
        ({"more": 1}, "more: is no key"),
        ({"factor_rows": 0}, "factor_rows=0: must be a number above 0"),
        ({"seconds": {FACTOR: [[64, 1.0]]}}, "seconds: must have factor, cholesky, eigen"),
        ({"seconds": {name: [[64, 1.0], [32, 2.0]] for name in operations.OPERATIONS}}, "dimensions must ascend"),
        ({"seconds": {name: [[64, -1.0], [65, 2.0]] for name in operations.OPERATIONS}}, "seconds.factor: must be"),
        (
            {"seconds": {name: [[64, 1], [80 + len(name), 2]] for name in operations.OPERATIONS}},
            "seconds.cholesky: dimensions must be those of factor",
        ),
    ],
)
def test_a_table_of_operations_is_read_strictly(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError) as refused:
        operations_of(_with(change), "f.json")
    assert f"f.json: {fault}" in str(refused.value) or fault in str(refused.value)


def test_a_written_table_is_read_as_it_was() -> None:
    assert operations_of(json.loads(json.dumps(KNOWN.to_json())), "f.json") == KNOWN
