"""Choices that `longhaul plot` and `longhaul tensorboard` offer."""

from __future__ import annotations

FIGURE_KINDS = {
    "accuracy_over_time": "the workload's metric over emulated time",
    "accuracy_over_bytes": "the workload's metric over bytes that left the WAN links",
    "accuracy_over_steps": "the workload's metric over steps",
    "time_to_target": "time until the metric reached its target",
    "step_split": "phases of a mean step",
    "pareto": "time to target over bytes until then, with the Pareto front",
    "link_use": "use of the WAN links over time, in percent of their target rate",
    "scaling": "samples per second over the number of workers",
}
"""Description of each kind, by its name on the command line."""
BANDS = {"range": "lowest to highest of the seeds", "interval": "95 % interval of the mean over seeds, Student's t"}
"""Description of each band around a mean, by its name on the command line."""
CLOCKS = ("wall", "emulated")
"""Times of scalars in TensorBoard: this machine's clock, or the start of the run plus emulated seconds."""
