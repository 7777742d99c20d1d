"""Federated rounds recomputed as if every client had a device and a link of its own."""
