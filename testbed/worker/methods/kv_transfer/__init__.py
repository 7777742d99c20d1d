"""KV-cache transfer: keys and values lie on a far side, and a decoder asks for those its attention needs."""
