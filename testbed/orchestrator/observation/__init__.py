"""Looks at a run from outside and writes its record; sends nothing over an emulated link."""
