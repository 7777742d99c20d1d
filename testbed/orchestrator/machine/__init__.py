"""This machine: what it has, what a run holds of it, and how it is cleaned up. Imports the core alone."""
