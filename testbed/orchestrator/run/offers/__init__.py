"""Runs that would do instead of one that is refused."""
