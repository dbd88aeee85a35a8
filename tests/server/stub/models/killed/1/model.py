import os
import signal


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        os.kill(os.getpid(), signal.SIGKILL)

    def execute(self, requests):
        return []
