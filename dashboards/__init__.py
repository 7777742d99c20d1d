"""What Prometheus and Grafana are given: dashboards as code, the JSON they make, and how both servers are set up.

Nothing here runs beside an emulation. `python -m dashboards.generate` writes `grafana/*.json`, which are committed.
"""
