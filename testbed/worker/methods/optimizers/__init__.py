"""Optimizers of strategies that torch has not: LAMB and SLAMB."""
