"""Many runs with one aim: sweeps, tuning, budgets, and plans."""
