"""The syntax of `key=value` arguments."""
