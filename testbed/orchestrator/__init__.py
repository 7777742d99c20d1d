"""Runs outside the nodes, as root: builds the network, starts the workers, watches, judges. Never imports torch."""
