"""Corpora and images that are made here, and how samples are divided among ranks or clients."""
