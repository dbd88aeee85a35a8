"""Sizes on the command line: 512m, 1g."""

from __future__ import annotations

import re

import click

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d+)([bkmg]?)", re.IGNORECASE)


class _Size(click.ParamType[int]):
    """A number of bytes, written as Docker's options are: a number and b, k, m or g."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = _SIZE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not a size such as 512m or 1g.", param, ctx)
        return int(match[1]) * _UNITS[match[2].lower()]


SIZE = _Size()
