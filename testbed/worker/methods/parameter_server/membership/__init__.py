"""Clients that join a server, leave it and come back."""
