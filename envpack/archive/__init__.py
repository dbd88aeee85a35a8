"""Turns an execution environment of the store into what a model repository holds: a folder or an archive."""
