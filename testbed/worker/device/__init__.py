"""Time on the emulated device: the virtual clock, compute times, accelerators, stopwatches."""
