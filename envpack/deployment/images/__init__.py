"""A repository as an image in a registry."""
