"""Data sets that others have published: fetched as packages on first use, checked by their hashes, kept as arrays."""
