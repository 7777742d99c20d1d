"""A run's scalars as event files for TensorBoard, after the run or while it goes on."""
