"""Finds how many times slower than the emulated clock a run goes."""
