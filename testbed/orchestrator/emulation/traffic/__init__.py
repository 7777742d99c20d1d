"""Background traffic: flows that share the emulated links with the training."""
