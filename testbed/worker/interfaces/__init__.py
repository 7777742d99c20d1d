"""Base classes of plug-ins: strategy, transform, workload, partition. They import no plug-in and no method."""
