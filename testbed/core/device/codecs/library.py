"""Times to encode and decode that were measured on an accelerator, and what they come to for other sizes.

Each codec was timed with one size. Between no element and that size its time is a straight line, which begins at what
launching its operations takes: by then the accelerator waits for the host. A sum of operations, each of which takes its
launch or its work, whichever is longer, lies below that line. Larger sizes go on along it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.device.codecs.work import CodecWork
from testbed.core.errors import InputError

_FOLDER = Path(__file__).parents[1] / "data"
CPU = "cpu"
CODECS = (CPU, "h200")
"""Values of `device.codecs`: times of a core of this machine, or of an accelerator.

An accelerator has a file in `data/`, made by scripts/device_codecs.py.
"""
_COPY_BYTES = 8
"""Bytes that a copy of one float32 reads and writes."""


@dataclass(frozen=True, kw_only=True)
class MeasuredCodec:
    """A codec with its parameters, and its times for the library's number of elements."""

    name: str
    target: str
    params: Mapping[str, Any]
    encode_s: float
    decode_s: float
    encode_operations: int
    """Number of operations that one encoding launches."""
    decode_operations: int


@dataclass(frozen=True, kw_only=True)
class CodecLibrary:
    """Codecs that were measured on one accelerator."""

    device: str
    elements: int
    """Size that each was measured with."""
    copy_s: float
    """Seconds to copy that many float32."""
    launch_s: float
    """Seconds to launch one operation, at most."""
    codecs: tuple[MeasuredCodec, ...]
    provenance: Mapping[str, Any]

    def find(self, target: str, params: Mapping[str, Any], where: str) -> MeasuredCodec:
        """Return the measured codec that is this one, whatever feedback is around it.

        Args:
            where: Beginning of the refusal, such as "device.codecs=h200".

        Raises:
            InputError: It was not measured, or with other parameters; with what was.
        """
        asked = {key: value for key, value in params.items() if key != "feedback"}
        alike = [one for one in self.codecs if one.target == target]
        if found := next((one for one in alike if one.params == asked), None):
            return found
        use = f"or the times of a core of this machine: device.codecs={CPU}"
        if not alike:
            known = ", ".join(one.name for one in self.codecs)
            raise InputError(f"{where}: {target} was not measured on {self.device}; use compressor={known}, {use}")
        one = min(alike, key=lambda one: len(_unlike(one.params, asked)))
        unlike = _unlike(one.params, asked)
        told = " ".join(f"compressor.{key}={_text(one.params.get(key))}" for key in unlike)
        not_these = ", ".join(_text(asked.get(key)) for key in unlike)
        raise InputError(f"{where}: {one.name} was measured with {told}, not {not_these}; use that, {use}")

    def seconds(self, codec: MeasuredCodec, work: CodecWork, scale: float = 1.0) -> float:
        """Return the seconds of one round of reducing a bucket.

        Args:
            scale: Factor by which tensors are larger than `work` says.
        """
        return (
            self._line(codec.encode_s, codec.encode_operations, work.encodes, scale * work.encoded)
            + self._line(codec.decode_s, codec.decode_operations, work.decodes, scale * work.decoded)
            + self._line(self.copy_s, 1, work.operations, scale * work.operation_bytes / _COPY_BYTES)
        )

    def unknowns(self, codec: MeasuredCodec, factor: float) -> Iterator[str]:
        """Yield what is not known of times that are `factor` times as long."""
        yield (
            f"how long {codec.name} takes for other than {self.elements:,} elements (on a line from what launching its"
            f" operations takes on {self.device})"
        )
        if factor != 1:
            yield f"how fast the device compresses (taken to need {factor:.3g} times as long as {self.device})"

    def _line(self, whole_s: float, operations: int, calls: int, elements: float) -> float:
        launching_s = min(operations * self.launch_s, whole_s)
        return calls * launching_s + (whole_s - launching_s) * elements / self.elements


@functools.cache
def codec_library(name: str) -> CodecLibrary:
    """Return the codecs that were measured on an accelerator, by its name among `CODECS`."""
    data = json.loads((_FOLDER / f"{name}-codecs.json").read_text())
    return CodecLibrary(**{**data, "codecs": tuple(MeasuredCodec(**one) for one in data["codecs"])})


def _unlike(params: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in params.keys() | asked.keys() if params.get(key) != asked.get(key))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
