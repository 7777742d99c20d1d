"""Containers of nodes: runc or Docker, their root filesystem and exit status."""
