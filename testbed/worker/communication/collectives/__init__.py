"""Collectives of our own over send and receive, beside gloo's: one file an algorithm, over the `Peers` of transport.py.

They block, and run one after another in the communicator's own thread. All receives are posted ahead of what is sent:
gloo sends once the receiver has said that it is ready, and that notice would otherwise wait behind bulk data, and cost
a round of messages twice its latency.
"""
