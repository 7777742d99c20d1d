"""The laws, by subject. Each is a function of one compressor."""
