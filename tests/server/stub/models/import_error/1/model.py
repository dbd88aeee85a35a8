"""Imports what is not there."""

import package_that_nobody_has  # noqa: F401


class TritonPythonModel:
    def initialize(self, args):
        pass

    def execute(self, requests):
        return []
