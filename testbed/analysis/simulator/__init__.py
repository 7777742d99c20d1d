"""Step time and bytes of a run that is not made: from its spec, a compute profile and a model of the network.

What it gives is simulated, and says so: it is never mixed with what was emulated or measured.
"""
