"""Specs name these by the package."""

from testbed.core.device.device import Native, Paced
from testbed.core.device.measured import Measured, Published
from testbed.core.device.profiled import Profiled

__all__ = ["Measured", "Native", "Paced", "Profiled", "Published"]
