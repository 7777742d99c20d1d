"""What a user writes under `events=` (docs/events.md), compiled to the changes of a spec."""
