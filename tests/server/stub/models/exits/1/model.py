"""Ends its process the polite way while it is initialised."""

import sys


class TritonPythonModel:
    def initialize(self, args):
        sys.exit(3)

    def execute(self, requests):
        return []
