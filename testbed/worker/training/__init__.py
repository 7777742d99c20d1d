"""The training loop and what it is made of: parts, warm-up, evaluation, optimizers."""
