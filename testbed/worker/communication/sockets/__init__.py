"""Collectives over TCP connections of Longhaul's own, as NCCL sends them."""
