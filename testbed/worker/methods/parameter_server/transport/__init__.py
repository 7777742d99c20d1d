"""Frames over TCP between server and clients. What arrives is not trusted."""
