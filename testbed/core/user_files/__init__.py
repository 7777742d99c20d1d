"""Files that users write: text as it is, bounded, and refused in one line a fault."""
