"""The command line `longhaul`. It may import every folder of the orchestrator; none of them imports it."""
