"""Numerics of K-FAC: factors of the Fisher matrix, and what is done with them. Functions of tensors; nothing sends."""
