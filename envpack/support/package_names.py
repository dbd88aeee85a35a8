"""Names of packages, in the one form that they are compared in."""

from __future__ import annotations

import re


def normalised(name: str) -> str:
    """A package's name as package indexes compare it: ``scikit-learn`` for ``Scikit_Learn``."""
    return re.sub(r"[-_.]+", "-", name).strip("-").lower()
