"""Ranges of Python versions in Poetry's syntax."""

from __future__ import annotations

import re

_LONGEST_RANGE = 1000  # characters; the pattern of its parts needs the square


def poetry_range(text: str) -> str:
    """A range of Python versions in Poetry's syntax as version specifiers; alternatives are separated by ``|``.

    >>> poetry_range("^3.8"), poetry_range("~3.9 || >=3.11,<3.13"), poetry_range("3.10.*")
    ('>=3.8,<4', '>=3.9,<3.10|>=3.11,<3.13', '==3.10.*')
    """
    found = []
    if len(text) > _LONGEST_RANGE:
        raise ValueError(f"{text[:20]!r}… is too long for a range")
    for alternative in re.split(r"\|\|?", text):
        parts = re.findall(r"[\^~<>=!]*\s*[\w.*+]+", alternative)
        if re.sub(r"[\s,]", "", alternative) != re.sub(r"\s", "", "".join(parts)):
            raise ValueError(f"{text!r} is not a range")
        found.append(",".join(filter(None, (_specifier(part) for part in parts))))
    return "" if "" in found else "|".join(found)


def _specifier(text: str) -> str:
    operator, version = re.fullmatch(r"([\^~<>=!]*)\s*(.+)", text.strip()).groups()  # type: ignore[union-attr]
    if version == "*":
        return ""
    if operator not in ("^", "~"):
        bare = version.removesuffix(".*")
        return f"=={bare}.*" if operator in ("", "=", "==") else f"{operator}{bare if operator != '!=' else version}"
    numbers = [int(part) for part in version.split(".")]
    kept = 1 if operator == "^" or len(numbers) == 1 else 2
    limit = [*numbers[: kept - 1], numbers[kept - 1] + 1]
    return f">={version},<{'.'.join(map(str, limit))}"
