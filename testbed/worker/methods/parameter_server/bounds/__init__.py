"""Error bounds of lossy compression, and schedules that change them over rounds."""
