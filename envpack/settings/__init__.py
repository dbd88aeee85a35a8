"""What a user can say, once: the settings, envpack.toml, and which of them counts. Facts about Triton releases."""
