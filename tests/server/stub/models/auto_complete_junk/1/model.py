"""Returns something else than a configuration from auto_complete_config."""


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        return {"max_batch_size": 4}

    def execute(self, requests):
        return []
