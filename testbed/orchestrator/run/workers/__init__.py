"""The run's workers: started, connected, followed and, where a strategy allows it, lost."""
