"""Turns a topology into devices, shapers and containers. Runs inside the run's private namespaces, as root."""
