"""Runs on both sides of a run. Needs the standard library; never anything else."""
