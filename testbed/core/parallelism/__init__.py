"""Plans of pipeline, data and tensor parallelism: what they cost, where to cut and to place them. Arithmetic alone."""
