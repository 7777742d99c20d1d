"""Work of reducing a bucket, and times of codecs on accelerators."""
