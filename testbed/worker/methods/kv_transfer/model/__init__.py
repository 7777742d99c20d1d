"""The model and the texts whose keys and values are transferred."""
