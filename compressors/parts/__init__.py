"""Parts that several compressors share; none of them is a compressor."""
