"""A repository as an image in a registry, and the registry itself."""
