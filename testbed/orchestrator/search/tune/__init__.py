"""`longhaul tune`: settings searched by Optuna, each trial made as runs are; what the runs say is all that is known."""
