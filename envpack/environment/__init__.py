"""Builds relocatable execution environments from locks, or from prefixes that exist already."""
