"""Runs compared: grouped by configuration, over seeds, as tables, figures and pages."""
