from __future__ import annotations

import pytest

from testbed.core.errors import (
    EXIT_FAILED,
    EXIT_INPUT,
    EXIT_MACHINE,
    InputError,
    Interrupted,
    LonghaulError,
    MachineError,
    RunError,
    nearest,
    raise_input_faults,
)


@pytest.mark.parametrize(
    ("error", "status"),
    [(InputError, EXIT_INPUT), (MachineError, EXIT_MACHINE), (RunError, EXIT_FAILED), (Interrupted, EXIT_FAILED)],
)
def test_every_error_ends_in_the_status_of_the_interface(error: type[LonghaulError], status: int) -> None:
    assert error("a").exit_status == status
    assert issubclass(error, LonghaulError)


def test_an_error_holds_one_line_for_each_fault() -> None:
    error = InputError("first", "second")
    assert error.faults == ("first", "second")
    assert str(error) == "first\nsecond"


def test_no_faults_raise_nothing() -> None:
    raise_input_faults(iter(()))
    with pytest.raises(InputError, match="a"):
        raise_input_faults(["a"])


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("every", ["sync_every", "bucket_size"], "sync_every"),
        ("interval", ["sync_every", "bucket_size"], "sync_every"),
        ("H", ["sync_every", "bucket_size"], "sync_every"),
        ("chekc", ["run", "check", "clean"], "check"),
        ("ls", ["run", "list", "laws"], "list"),
        ("bandwidth", ["rate", "rtt", "loss"], "rate"),
        ("latency", ["rate", "rtt", "loss"], "rtt"),
        ("sparsity", ["density", "feedback"], "density"),
        ("learning-rate", ["learning_rate", "momentum"], "learning_rate"),
        ("TopK", ["topk", "none"], "topk"),
        ("compresion", ["compressor", "topo"], "compressor"),
        ("steps", ["local_steps", "x"], "local_steps"),
        ("zzz", ["rate", "rtt"], None),
        ("", ["rate"], None),
        ("rate", [], None),
    ],
)
def test_the_nearest_name_is_a_spelling_or_a_synonym(name: str, known: list[str], meant: str | None) -> None:
    assert nearest(name, known) == meant
