"""Keys and values on their way: stored, coded and put into messages."""
