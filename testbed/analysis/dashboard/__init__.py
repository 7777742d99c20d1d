"""Dashboards without Grafana: their JSON read as Grafana reads it, asked of a Prometheus, drawn as pages or checked.

What is not known here, be it a panel, an option that changes what is seen, or a transformation, is an error: a page
that left it out would look right and not be.
"""
