"""What Grafana itself makes of the values our panels show: `@grafana/data` asked about the committed dashboards.

The answers are kept in tests/unit/analysis/grafana_values.json, to which the tests hold the preview pages; so they need
no Node. `python -m dashboards.grafana_data` writes that file anew, with Node and the packages of package-lock.json.
"""
