"""Make the times of an accelerator's codecs that the repository holds from their measurements.

    .venv/bin/python scripts/device_codecs.py codecs.json testbed/core/device/data/h200-codecs.json

`codecs.json` holds a row for each compressor with its settings of experiments/conf: milliseconds to encode and decode
one size, and bytes of the payload, which are checked where they are fixed. Those with rounds of their own are left out,
since encoding and decoding are not all they do. How many operations one call launches is counted here, on a tensor that
codecs do not cut into pieces for this machine's caches; none takes longer to launch than the least measured time of a
call over its operations.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from compressors.base.compressor import Compressor, Layout
from compressors.base.routes import planning
from testbed.orchestrator.config.config import resolve
from testbed.worker.plugins.factory import build
from testbed.worker.profile.codec_counts import is_operation

_MS = 1e-3
_COUNTED = 4096
_STEP = 100
"""Past the warm-up of those that have one."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("codecs", type=Path, help="rows of measured codecs, JSON")
    parser.add_argument("output", type=Path, help="the accelerator's codecs")
    given = parser.parse_args()
    raw = given.codecs.read_bytes()
    found = library(json.loads(raw), hashlib.sha256(raw).hexdigest())
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found['codecs'])} codecs, {given.output.stat().st_size:,} bytes")


def library(data: dict[str, Any], sha256: str) -> dict[str, Any]:
    """Return the fields of `testbed.core.device.codecs.library.CodecLibrary`."""
    copy, *rows = data["rows"]
    codecs = [found for row in rows if (found := _codec(row, data["elements"]))]
    calls = [(one[f"{kind}_s"], one[f"{kind}_operations"]) for one in codecs for kind in ("encode", "decode")]
    return {
        "device": data["device"],
        "elements": data["elements"],
        "copy_s": round(copy["ms"] * _MS, 9),
        "launch_s": round(min(seconds / operations for seconds, operations in calls if operations), 9),
        "codecs": codecs,
        "provenance": {"made_by": "scripts/device_codecs.py", "sha256": sha256},
    }


def _codec(row: dict[str, Any], elements: int) -> dict[str, Any] | None:
    part = resolve(["topo=lan", f"compressor={row['name']}", "dilation=1"]).spec.compressor
    codec = build("compressor", part, Compressor)
    if codec.traits.own_rounds:
        return None
    layout = Layout(((elements,),))
    payload_bytes = codec.payload_bytes(layout, planning(layout, 1, _STEP))
    if codec.traits.fixed_size and payload_bytes != row["bytes"]:
        raise SystemExit(
            f"{row['name']}: sends {payload_bytes} bytes with its settings, was measured with {row['bytes']}"
        )
    encode_operations, decode_operations = _operations(codec)
    return {
        "name": row["name"],
        "target": part.target,
        "params": {key: value for key, value in part.params.items() if key != "feedback"},
        "encode_s": round(row["encode_ms"] * _MS, 9),
        "decode_s": round(row["decode_ms"] * _MS, 9),
        "encode_operations": encode_operations,
        "decode_operations": decode_operations,
    }


def _operations(codec: Compressor) -> tuple[int, int]:
    """Return how many operations an encoding and a decoding launch."""
    layout = Layout(((_COUNTED,),))
    context = planning(layout, 1, _STEP)
    gradient = torch.randn(_COUNTED, generator=torch.Generator().manual_seed(0))
    payload = codec.encode(gradient, context)  # what it loads or keeps at first is none of its work
    encoding = _counted(lambda: codec.encode(gradient, context))
    return encoding, _counted(lambda: codec.decode(payload, torch.zeros(_COUNTED), context)) - 1  # zeros themselves


def _counted(call: Callable[[], object]) -> int:
    counting = _Operations()
    with counting, torch.no_grad():
        call()
    return counting.count


class _Operations(TorchDispatchMode):
    """Counts operations."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += is_operation(func)
        return func(*args, **(kwargs or {}))


if __name__ == "__main__":
    main()
