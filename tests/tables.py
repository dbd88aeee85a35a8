"""Tests of a table: one test that tries every row, and reports each that fails."""

import functools
import inspect

import pytest


def every_row(names, rows):
    """Decorate a test that takes the values of a row as arguments of these names.

    For many short checks of the same kind that change nothing, since rows share what the test's fixtures make. For all
    others, ``pytest.mark.parametrize`` takes the same arguments.
    """
    names = (names,) if isinstance(names, str) else tuple(names)
    rows = [row if len(names) > 1 else (row,) for row in rows]
    assert rows, "a table without rows tests nothing"

    def decorate(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def test(**fixtures):
            failures = []
            for row in rows:
                values = dict(zip(names, row, strict=True))
                try:
                    function(**fixtures, **values)
                except (Exception, pytest.fail.Exception) as error:  # whatever fails, the other rows are tried
                    failures.append(f"{values}:\n{type(error).__name__}: {error}")
            if failures:
                pytest.fail(f"{len(failures)} of {len(rows)} rows\n" + "\n\n".join(failures), pytrace=False)

        del test.__wrapped__  # pytest would look for the fixtures of the function in it
        left = [parameter for name, parameter in signature.parameters.items() if name not in names]
        test.__signature__ = signature.replace(parameters=left)
        return test

    return decorate
