"""The keys of a run, from what a user writes to a `RunSpec` with every error at once."""
