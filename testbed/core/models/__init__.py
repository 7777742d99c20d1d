"""Tables of big models: shapes and FLOPs of their layers."""
