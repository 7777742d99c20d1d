"""K-FAC: factors of the Fisher matrix, what is computed from them, and how all of it travels between ranks."""
