"""Live pages: runs chosen, overlaid and followed in a browser, served on loopback alone."""
