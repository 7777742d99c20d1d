"""Runs on machines that are there, under `torchrun`: nothing is emulated, and the record says so."""
