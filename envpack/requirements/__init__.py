"""Requirements of a model, read from the files that projects already have."""
