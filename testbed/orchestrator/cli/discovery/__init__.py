"""Choices of a user: shown, completed on the command line, and begun from a skeleton."""
