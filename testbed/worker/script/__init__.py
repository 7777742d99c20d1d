"""A user's own training script in a run: a communication hook and a link to the run."""
