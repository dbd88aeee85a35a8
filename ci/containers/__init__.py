"""A Docker daemon and a Triton image for the tests that run in containers, made without any registry."""
