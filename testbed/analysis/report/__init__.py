"""The report of one run: its page, its tables and the files derived from its record."""
