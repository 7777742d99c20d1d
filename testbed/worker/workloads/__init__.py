"""Models with their data and their target: one file a workload."""
