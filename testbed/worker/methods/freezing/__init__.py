"""Policies that freeze layers during training."""
