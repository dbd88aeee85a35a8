"""Compiles the stub that embeds a Python."""
