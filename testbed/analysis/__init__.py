"""Runs afterwards, anywhere a run directory can be read. Knows the record only, and never runs code from it."""
