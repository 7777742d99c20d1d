"""The base class of compressors and what it is built on: contexts, routes, payloads, error feedback."""
