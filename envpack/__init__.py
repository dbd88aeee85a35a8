"""envpack: from what a model requires to a Triton server that demonstrably serves it."""

__version__ = "0.1.0"
