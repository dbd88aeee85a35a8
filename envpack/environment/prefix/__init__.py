"""Copies an existing conda or virtual environment into an execution environment of the store."""

from envpack.environment.prefix.build import environment_from_prefix
from envpack.environment.prefix.detect import Prefix, detect_prefix

__all__ = ["Prefix", "detect_prefix", "environment_from_prefix"]
