"""Captured packets of a run, read from pcap files and counted per flow."""
