"""Low-rank layers: two factors in the place of a weight, and how a model comes to have them."""
