"""The verdict of a run: rules over what was observed, and the judge that applies them."""
