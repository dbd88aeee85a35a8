"""What the benchmarks of the stub share: models, a lean load generator, and figures of processes."""
