"""Two ends find out whether they speak of the same tensors."""

from __future__ import annotations

import pytest

from testbed.worker.methods.parameter_server.transport.tensor_schema import Schema, TensorSpec, schema_hash

SCHEMA = Schema.of([TensorSpec("weight", (3, 2), "float32"), TensorSpec("bias", (3,), "bfloat16")])


def test_a_schema_is_the_same_whatever_its_order_and_another_with_any_other_tensor() -> None:
    assert Schema.of(reversed(SCHEMA.tensors)) == SCHEMA
    assert schema_hash(reversed(SCHEMA.tensors)) == SCHEMA.hash
    bias = TensorSpec("bias", (3,), "bfloat16")
    others = [
        [("weight", (2, 3), "float32")],
        [("weight", (3, 2), "int32")],
        [("weights", (3, 2), "float32")],
        [],
        [("weight", (3, 2), "float32"), ("x", (), "bool")],
    ]
    hashes = {schema_hash([bias, *(TensorSpec(*tensor) for tensor in other)]) for other in others}
    assert len(hashes - {SCHEMA.hash}) == len(others)


def test_raw_sizes_follow_from_shape_and_dtype() -> None:
    assert [tensor.raw_bytes for tensor in SCHEMA.tensors] == [6, 24] and SCHEMA.raw_bytes == 30
    assert (TensorSpec("x", (), "int64").raw_bytes, TensorSpec("x", (0, 9), "int8").raw_bytes) == (8, 0)


def test_bad_schemas_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dtype=complex64 of x.*\nshape=\(-1,\) of x"):
        TensorSpec("x", (-1,), "complex64")
    with pytest.raises(ValueError, match="once"):
        Schema.of([TensorSpec("x", (1,), "int8"), TensorSpec("x", (2,), "int8")])
