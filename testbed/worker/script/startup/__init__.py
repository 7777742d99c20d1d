"""Folder at the head of PYTHONPATH in nodes with a user's script."""
