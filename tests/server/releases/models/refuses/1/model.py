"""Cannot be loaded."""


class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("no model without " + args["model_name"].upper())

    def execute(self, requests):
        return None
