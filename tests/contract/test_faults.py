"""What a constructor is told wrongly: each of its parameters, in every configuration there is."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from compressors.adaptive import Adaptive
from compressors.none import Uncompressed
from compressors.policy import Policy
from compressors.topk import TopK
from testbed.core.kinds import shown
from testbed.core.parameters import choice, flag, fraction, number, power_of_two, share, whole
from testbed.worker.plugins.compressor_catalogue import names, part
from tests.contract.catalogue import make

HUGE = 10**400
NULLABLE = {"clip_sigmas", "learning_rate", "momentum"}
"""For which None stands for something."""
NESTED = {"candidates", "rules", "inner", "otherwise"}
SHARED = {"deepreduce_bloom", "deepreduce_fit", "deepreduce_qsgd", "int8_zstd"}
"""Of a class that another configuration has too."""


def _parameters(kind: str) -> list[tuple[str, str, Any]]:
    found = []
    for name in names():
        for key, value in part(name).params.items() if name not in SHARED else ():
            is_number = key in NULLABLE or (isinstance(value, int | float) and not isinstance(value, bool))
            kinds = {"number": is_number, "flag": isinstance(value, bool), "text": isinstance(value, str)}
            if kinds[kind]:
                found.append((name, key, value))
    return found


def _faults(name: str, **params: object) -> list[str]:
    with pytest.raises(ValueError, match="=") as caught:
        make(name, **params)
    assert type(caught.value) is ValueError
    lines = str(caught.value).splitlines()
    assert all(len(line) < 300 for line in lines)
    return lines


@pytest.mark.parametrize(("name", "key", "value"), _parameters("number"))
def test_numbers_are_numbers_of_their_range(name: str, key: str, value: object) -> None:
    wrong: list[object] = [True, False, math.nan, math.inf, -math.inf, -1, -1.5, HUGE, -HUGE, 10**5000, "text", "1"]
    wrong += [[], [1], [10**5000], {}, 1j, b"1", *([] if key in NULLABLE else [None])]
    for bad in wrong:
        (line,) = _faults(name, **{key: bad})
        assert line.startswith(f"{key}={shown(bad)}: ")
    make(name, **{key: value})


@pytest.mark.parametrize(("name", "key", "value"), _parameters("flag") + _parameters("text"))
def test_choices_are_among_those_known(name: str, key: str, value: object) -> None:
    wrong: list[object] = [None, math.nan, 2, -1, HUGE, "text", "", [], [value], {}, {"a": 1}]
    if not isinstance(value, bool) and key != "feedback":
        wrong += [True, False]
    for bad in wrong:
        (line,) = _faults(name, **{key: bad})
        assert line.startswith(f"{key}={shown(bad)}: ")


@pytest.mark.parametrize("name", names())
def test_all_faults_are_raised_together_with_that_of_feedback(name: str) -> None:
    keys = [key for key in part(name).params if key != "feedback" and key not in NESTED]
    lines = _faults(name, **dict.fromkeys(keys, HUGE), feedback="zz")
    assert sorted(line.partition("=")[0] for line in lines) == sorted([*keys, "feedback"])
    for first, second in itertools.pairwise(keys):
        assert len(_faults(name, **{first: [], second: "no"}, feedback="zz")) == 3


@pytest.mark.parametrize("bad", [None, 5, "text", {}, 1.0, True])
def test_lists_of_compressors_are_lists(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"^candidates=.*\nwithin=inf: .*\nfeedback=zz: "):
        Adaptive(candidates=bad, within=math.inf, feedback="zz")
    with pytest.raises(ValueError, match=r"^otherwise=None: .*\nrules=.*\nfeedback=zz: "):
        Policy(rules=bad, otherwise=None, feedback="zz")  # type: ignore[arg-type]
    for key in ("inner", "otherwise"):
        for name in ("zstd", "deepreduce") if key == "inner" else ("policy",):
            (line,) = _faults(name, **{key: bad})
            assert line.startswith(f"{key}=")


@pytest.mark.parametrize("limit", [True, 1.0, -1, HUGE, None, "1", []])
def test_limits_of_rules_are_whole_numbers(limit: object) -> None:
    rule = {"min_numel": limit, "max_dims": limit, "compressor": TopK()}
    with pytest.raises(ValueError, match=r"^rules\[0\].min_numel=.*\nrules\[0\].max_dims="):
        Policy(rules=[rule], otherwise=Uncompressed())


@pytest.mark.parametrize("seconds", [True, -1, HUGE, math.nan, math.inf, None, "1", []])
def test_seconds_of_candidates_are_numbers(seconds: object) -> None:
    with pytest.raises(ValueError, match=r"^candidates\[0\].codec_s_element=.*: must be at least 0 and below 1$"):
        Adaptive(candidates=[{"compressor": Uncompressed(), "codec_s_element": seconds}])


def test_what_is_in_range_has_no_fault() -> None:
    assert whole("n", 8, 8, 8) is None
    assert whole("n", 2**62, 1) is None
    assert whole("n", 24, 8, 64, multiple_of=8) is None
    assert power_of_two("n", 1, 1) is None
    assert number("x", 0, least=0, below=1) is None
    assert number("x", 1, above=0, most=1) is None
    assert number("x", None, above=0, below=1, null=True) is None
    assert share("x", 1) is None
    assert fraction("x", 0) is None
    assert fraction("x", None, null=True) is None
    assert flag("x", False) is None
    assert choice("x", "a", {"a": 1}) is None


def test_lines_say_what_is_asked_for() -> None:
    assert whole("n", 2**63, 1) == f"n={2**63}: must be a whole number, at least 1 and below 2**63"
    assert whole("n", HUGE, 1, 9) == f"n=1{'0' * 78}…: must be a whole number, at least 1 and at most 9"
    assert whole("n", 12, 8, 64, multiple_of=8) == "n=12: must be a multiple of 8, at least 8 and at most 64"
    assert power_of_two("n", 3, 1) == "n=3: must be a power of two, at least 1"
    assert number("x", 1, least=0, below=1, null=True) == "x=1: must be at least 0 and below 1, or null"
    assert number("x", 0, above=0, most=2.5) == "x=0: must be above 0 and at most 2.5"
    assert share("x", 0) == "x=0: must be in (0, 1]"
    assert fraction("x", 1.0, null=True) == "x=1.0: must be in [0, 1), or null"
    assert flag("x", 1) == "x=1: must be true or false"
    assert choice("x", 3, (1, 2)) == "x=3: unknown; known: 1, 2"
    assert shown(10**5000) == "int too long to show"
    assert shown("a\nb" * 100) == ("a " + "ba " * 99)[:79] + "…"
