"""Communication between ranks: the communicator, which counts what it sends, and its transport."""
