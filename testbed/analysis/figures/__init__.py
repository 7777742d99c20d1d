"""Figures of runs: one plain table for each, which matplotlib prints and Plotly draws in a browser."""
