"""What a measurement on this machine was taken on."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import Any

import torch


def this_machine(device: torch.device | None = None) -> dict[str, Any]:
    """Where and when a profile was measured."""
    facts: dict[str, Any] = {
        "measured_on": "cpu",
        "processor": processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    }
    if device is not None and device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {"measured_on": properties.name, "memory_bytes": properties.total_memory, "cuda": torch.version.cuda}
    return facts


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
