"""A parameter server and its clients, over TCP connections of their own, so that a client may fail and come back."""
