"""Measured timelines of accelerators: what they hold, their file, those of the tree, and published lengths."""
