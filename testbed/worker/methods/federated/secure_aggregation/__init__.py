"""Secure aggregation: the server learns the sum of all updates and no single one."""
