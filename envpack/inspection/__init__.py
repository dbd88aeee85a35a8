"""Says all that is wrong with a model repository by its files alone: nothing is started, run or unpacked."""

from envpack.inspection.finding import Finding
from envpack.inspection.repository import RepositoryInspection, inspect_repository, is_repository

__all__ = ["Finding", "RepositoryInspection", "inspect_repository", "is_repository"]
