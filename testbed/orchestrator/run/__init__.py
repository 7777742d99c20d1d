"""One run, from the checks before anything is built to the finalized record."""
