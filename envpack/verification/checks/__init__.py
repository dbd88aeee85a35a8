"""The checks, one function each."""
