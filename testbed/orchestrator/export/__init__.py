"""Topologies written for other tools, as text and as pictures."""
