"""Progress that a test can compare."""

from envpack.support.progress import NoProgress


class Steps(NoProgress):
    """Records the steps with their outcomes, and the details."""

    def __init__(self):
        self.seen = []

    def begin(self, task):
        self.seen.append(task)

    def detail(self, text):
        self.seen.append(text)

    def end(self, outcome):
        self.seen[-1] += f": {outcome}"
