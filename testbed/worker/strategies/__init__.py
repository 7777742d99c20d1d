"""Ways to train together: one file a strategy."""
