"""Kinds of what a user chooses; imports nothing, since completion asks for them at each TAB."""

KINDS = {
    "strategies": "strategy",
    "compressors": "compressor",
    "workloads": "workload",
    "topologies": "topo",
    "devices": "device",
    "transforms": "transform",
}
"""Groups of a run's keys by the names of what they hold."""
