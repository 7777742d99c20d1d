"""Ended runs in the directory of runs: found, read, filtered and listed."""
