"""`longhaul plan` and `longhaul predict`: parallel plans searched, and runs predicted by the analysis."""
