"""Verifies that a real Triton server can serve a model repository."""
