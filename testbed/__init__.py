"""Longhaul: real distributed training over emulated cross-region links, with a verdict on every run."""

__version__ = "1.0.0"
