"""Clients of federated learning: their samples, availability, speed, selection and placement."""
