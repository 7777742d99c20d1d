"""Federated learning without its tensors: who has which samples, who takes part in a round, what a client counts."""
