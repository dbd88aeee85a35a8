"""Progress that a test can compare."""

from envpack.support.progress import NoProgress


class Steps(NoProgress):
    """Records the steps with their outcomes, the details, and how far the steps were."""

    def __init__(self):
        self.seen, self.advanced = [], []

    def begin(self, task):
        self.seen.append(task)

    def detail(self, text):
        self.seen.append(text)

    def advance(self, done, total, unit, *, size=0):
        self.advanced.append((done, total, unit, size))

    def end(self, outcome):
        self.seen[-1] += f": {outcome}"
