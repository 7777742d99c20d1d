"""Check of Grafana's dashboards: their JSON read as Grafana reads it, and every query asked of a Prometheus.

A panel, an option that changes what is seen, or a transformation that is not known here is a fault: Grafana would say
nothing of it.
"""
