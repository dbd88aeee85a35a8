"""What a model requires, from whatever file says it."""

from envpack.requirements.model import CondaPackage, PipPackage, Requirements
from envpack.requirements.read import find_requirements, read_requirements

__all__ = ["CondaPackage", "PipPackage", "Requirements", "find_requirements", "read_requirements"]
