"""Trials of a dilation on the run itself, before it begins."""
