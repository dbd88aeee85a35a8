"""A repository in an object store, as a server reads it there."""
