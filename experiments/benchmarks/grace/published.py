"""GRACE's released results that the sweep is held against: throughput over that of dense gradients.

From the released raw data (github sands-lab/grace-data, GRACE_data_release.pickle, 1,836 runs): eight workers of one
V100 each, TCP, Horovod over MPI, for each method the better of memory on and off. Rounded to two digits.
"""

from __future__ import annotations

CELLS, CELLS_WON = 292, 78
"""Of the whole data, every method at every ratio: cells, and those in which a method was faster than dense."""
BY_RATE = {"1 Gbit/s": (81, 37), "10 to 25 Gbit/s": (211, 41)}
"""Likewise."""

COLUMNS: tuple[tuple[str, float], ...] = (
    *(("ResNet-20", 10), ("DenseNet-40", 10), ("ResNet-50", 1), ("ResNet-50", 10), ("ResNet-50", 25)),
    *(("VGG-19", 10), ("NCF", 10), ("LSTM", 1), ("LSTM", 10), ("U-Net", 1), ("U-Net", 10)),
)
"""Model and rate in Gbit/s."""
_ROWS: dict[str, tuple[float | None, ...]] = {
    "randomk 1 %": (0.90, 0.91, 4.95, 1.40, 1.30, 0.33, 0.40, 1.79, 0.65, 2.52, 0.99),
    "randomk 10 %": (0.91, 0.86, 3.47, 1.27, 1.23, None, 0.40, 1.66, 0.63, 2.06, 0.95),
    "threshold": (0.46, 0.52, 3.72, 1.04, 0.98, 1.41, 4.74, 1.77, 2.07, 1.70, 0.69),
    "powersgd": (0.77, 0.82, 1.65, 0.82, 0.79, 5.60, 4.44, 1.88, 2.68, 1.10, 0.84),
    "dgc 1 %": (0.15, 0.15, 2.84, 0.47, 0.46, 4.87, 3.34, 1.68, 2.13, 0.69, 0.26),
    "topk 1 %": (0.44, 0.48, 2.16, 0.68, 0.63, 1.40, 1.44, 1.52, 0.98, 1.45, 0.61),
    "topk 10 %": (0.45, 0.47, 0.87, 0.54, 0.52, None, 0.89, 0.98, 0.67, 0.80, 0.55),
    "adaq 1 %": (0.08, 0.08, 1.85, 0.34, 0.32, 3.53, 2.88, 1.73, 2.11, 0.31, 0.12),
    "signsgd": (0.56, 0.55, 1.29, 0.75, 0.71, 1.38, 1.44, 0.96, 0.99, 0.83, 0.76),
    "efsignsgd": (0.43, 0.44, 1.30, 0.69, 0.66, 1.40, 1.34, 0.98, 0.98, 0.73, 0.55),
    "onebit": (0.31, 0.37, 1.29, 0.65, 0.62, 1.35, 1.35, 0.98, 0.96, 0.66, 0.46),
    "qsgd": (0.47, 0.46, 0.85, 0.70, 0.67, 1.36, 1.36, 0.96, 0.99, 0.74, 0.62),
    "terngrad": (0.49, 0.50, 0.86, 0.71, 0.69, 1.45, 1.40, 0.96, 0.99, 0.76, 0.65),
    "natural": (0.26, 0.26, 1.22, 0.59, 0.56, 1.04, 1.10, 0.91, 0.79, 0.64, 0.40),
    "8bit": (0.33, 0.32, 1.19, 0.53, 0.51, 0.81, 0.84, 0.95, 0.63, 0.68, 0.45),
    "sketch": (0.34, 0.40, 1.15, 0.50, 0.48, 0.81, 0.76, 0.91, 0.56, 0.68, 0.51),
    "inceptionn": (0.06, 0.06, None, 0.13, None, 0.25, 0.37, None, 0.19, None, 0.15),
}

RATIOS: dict[tuple[str, float], dict[str, float]] = {
    column: {method: ratio for method, row in _ROWS.items() if (ratio := row[index]) is not None}
    for index, column in enumerate(COLUMNS)
}
"""By model and rate, by method; what was not run is left out."""
LEFT_OUT = ("U-Net",)
"""Models that are not in our tables."""
