"""Would answer by way of response senders."""


class TritonPythonModel:
    def execute(self, requests):
        return None
