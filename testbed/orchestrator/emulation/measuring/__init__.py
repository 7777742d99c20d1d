"""Delay and rate of each link measured against its target, and packets captured."""
