"""Runs of a sweep on other machines: a spec goes there, and the whole directory of the run comes back."""
