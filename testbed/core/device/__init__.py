"""Specs name these by the package."""

from testbed.core.device.device import Native, Paced, Profiled

__all__ = ["Native", "Paced", "Profiled"]
