"""Conda packages: the engine that resolves and installs them, and this machine's and uv's interpreters as packages."""
