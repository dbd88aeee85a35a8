"""Models on a real server while they are written: what changes is built and loaded again."""
