"""`longhaul dashboard`: serves the archive of runs with Prometheus, for Grafana and as pages."""
