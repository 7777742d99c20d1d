"""The cases that the laws are checked on: compressors, gradients, malformed payloads."""
