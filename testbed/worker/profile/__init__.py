"""Compute times measured on this machine: of steps, of layers, of codecs."""
