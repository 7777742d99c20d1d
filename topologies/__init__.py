"""Families of networks as plain functions, and measured figures as data.

Read by the orchestrator; no Mininet, no torch.
"""
