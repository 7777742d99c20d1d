"""Federated learning: what clients and a server compute, whatever carries it."""
