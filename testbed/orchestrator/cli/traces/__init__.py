"""Timelines from torch.profiler traces of jobs that ran elsewhere."""
