"""What a worker computes on, as far as time is concerned."""

from __future__ import annotations


class Native:
    """The CPU as it is: a phase takes the CPU seconds it takes, times the dilation."""
