"""Weights trained here beforehand, which workloads of fine-tuning begin with."""
