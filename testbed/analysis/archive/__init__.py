"""Many runs in one Prometheus database: samples converted to blocks, updated and repaired."""
