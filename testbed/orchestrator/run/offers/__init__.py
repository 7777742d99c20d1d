"""What would do instead of a run that is refused."""
