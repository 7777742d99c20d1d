"""Rounds on the server: updates received and averaged, the global model updated and sent."""
