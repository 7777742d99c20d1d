"""The look of figures, tables and pages, the same wherever a method is shown."""
