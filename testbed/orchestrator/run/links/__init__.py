"""Links of a run with what is measured and recorded of them."""
