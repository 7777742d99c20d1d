"""A script of a user's, of which a spec holds the path alone."""
