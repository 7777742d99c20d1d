"""The inputs of the simulator: step plan, buckets, traffic, network, and fitted constants."""
