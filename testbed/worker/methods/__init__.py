"""What methods need beyond one file, a folder each. They import no strategy, transform or workload."""
