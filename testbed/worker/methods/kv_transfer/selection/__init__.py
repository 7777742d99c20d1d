"""Methods that select which keys and values a decode step fetches."""
