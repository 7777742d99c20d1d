"""Tools that work for any `nn.Module`: layers, pieces, chains, checkpoints. Imports no other folder of the worker."""
