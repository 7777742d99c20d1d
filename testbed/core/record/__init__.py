"""The form of a run's record: directory, events and notes, metrics, summary, and the workers' channel."""
