"""Gradients reduced in buckets: how they are fused, compressed and averaged over ranks."""
