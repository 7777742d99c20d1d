"""From the wall clock to the emulated one: a run with dilation k goes k times slower than what it stands for.

Whatever is measured on the network is in wall-clock terms; whatever is recorded is in emulated ones. Both meet here.
"""

from __future__ import annotations

from typing import Any


def emulated(values: dict[str, Any], k: float) -> dict[str, Any]:
    """Rates (`..._bit_s`) times k, times (`..._s`) divided by k, nested ones and lists of numbers too; all else stays.

    >>> emulated({"rate_bit_s": 5e8, "rtt_s": 0.134, "loss_ratio": 0.01}, 2)
    {'rate_bit_s': 1000000000.0, 'rtt_s': 0.067, 'loss_ratio': 0.01}
    """
    return values if k == 1 else {key: _one(key, value, k) for key, value in values.items()}


def _one(key: str, value: Any, k: float) -> Any:
    if isinstance(value, dict):
        return emulated(value, k)
    if isinstance(value, list):
        return [_one(key, item, k) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if key.endswith("_bit_s"):
        return value * k
    return value / k if key.endswith("_s") else value
