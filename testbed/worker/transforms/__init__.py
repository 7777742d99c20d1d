"""Ways to change the model while it is trained: one file a transform."""
