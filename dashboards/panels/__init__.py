"""Every panel, once, by subject; the boards choose among them."""
