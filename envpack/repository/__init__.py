"""Triton's model repository: opens models, checks and edits their configuration, places stubs and environments."""
