"""Aggregation on the server: rules, weights, corrections, and robustness against attacks."""
