"""Specs name these by the package."""

from testbed.core.device.device import Native, Paced, Profiled
from testbed.core.device.measured import Measured, Published

__all__ = ["Measured", "Native", "Paced", "Profiled", "Published"]
