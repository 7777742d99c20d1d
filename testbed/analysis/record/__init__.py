"""A run directory as the analysis reads it: events, curves, samples. Imports no other folder of the analysis."""
