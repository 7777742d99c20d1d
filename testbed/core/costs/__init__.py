"""Closed-form costs of collectives, fusion, K-FAC and low-rank layers. Arithmetic alone."""
