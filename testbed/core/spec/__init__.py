"""The specification of a run: topology, link profiles, paths, schedule, scale."""
