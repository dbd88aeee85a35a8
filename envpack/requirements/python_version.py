"""A range of Python versions that leaves one minor version."""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet

_MINORS = range(40)
_PATCHES = range(30)


def only_minor(specifier: str) -> str:
    """The Python 3 minor version that a specifier leaves, ``""`` if it leaves several or none.

    Args:
        specifier: as in ``requires-python``, for example ``">=3.10,<3.11"``.

    Raises:
        ValueError: it is no specifier.

    """
    try:
        allowed = SpecifierSet(specifier)
    except InvalidSpecifier as error:
        raise ValueError(str(error)) from error
    left = [f"3.{minor}" for minor in _MINORS if any(allowed.contains(f"3.{minor}.{patch}") for patch in _PATCHES)]
    return left[0] if len(left) == 1 else ""
