"""Parts of a spec built from their names; plug-ins are imported here by name alone."""
