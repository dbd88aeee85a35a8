"""A repository of several models that the workers of a cluster build."""

import subprocess

from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import Ended, command, envpack, variables

from .sources import PYTHON

MODELS = {"a": "numpy\n", "b": "numpy\ntree\n", "c": "numpy\nleaf==1.0\n", "d": "numpy\n"}


class Caller:
    """A repository of several models, two of which have the same requirements, and a cache of its own."""

    def __init__(self, folder, channel):
        files = {f"{name}/{path.removeprefix('m/')}": content for name in MODELS for path, content in MODEL.items()}
        self.repository = BadInput("", "", 0, "", (), files).write(folder)
        for name, requirements in MODELS.items():
            (self.repository / name / "requirements.txt").write_text(requirements)
        self.cache, self._channel = folder / "cache", channel
        self._words = ("--repository", self.repository, "--python", PYTHON, "--channel", channel, "--json")

    def words(self, verb, on, *more):
        return (verb, *self._words, *(("--stub", "never") if verb == "build" else ()), "--on", on, *more)

    def run(self, verb, on, *more, **changes):
        return envpack(*self.words(verb, on, *more), changes={"ENVPACK_CACHE_DIR": str(self.cache), **changes})

    def emit(self, *more):
        return envpack("kubernetes", "build", *self._words, "--stub", "never", *more)

    def build_here(self, *more, **changes):
        changes |= {"ENVPACK_CACHE_DIR": str(self.cache)}
        return envpack("build", *self._words, "--stub", "never", *more, changes=changes)

    def start(self, verb, on, *more, **changes):
        everywhere = variables({"ENVPACK_CACHE_DIR": str(self.cache), **changes})
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command(*self.words(verb, on, *more)), env=everywhere, start_new_session=True, **pipes)

    @property
    def placed(self):
        return [name for name in MODELS if (self.repository / name / f"python{PYTHON}").is_dir()]


def ended(process):
    out, err = process.communicate(timeout=120)
    return Ended(process.returncode, out, err)
