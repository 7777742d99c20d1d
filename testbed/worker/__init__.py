"""What runs inside a node: the training loop and all that hangs on it. Needs torch; knows nothing of the emulation."""
