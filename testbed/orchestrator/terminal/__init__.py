"""Output on the terminal: live display, progress, and the final table."""
