"""Gossip: averaging with neighbours on a graph, without a server."""
