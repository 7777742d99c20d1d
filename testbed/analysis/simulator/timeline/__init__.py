"""Steps simulated on a timeline: who computes and sends when. Imports the simulator's model alone."""
