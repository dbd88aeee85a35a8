"""Publications of a few files, and the store that they go to."""

import shutil

from envpack.deployment.objects.content import Publication, PublishedFile
from envpack.deployment.objects.fetch import copy_publication
from envpack.deployment.objects.record import OWN
from envpack.deployment.signing import read_trust
from envpack.store.objects import Objects
from envpack.support.progress import NoProgress


class Noted(Objects):
    """Notes what is written and removed, in order; writing the path ``broken`` fails with ``failure``."""

    def __init__(self, location):
        super().__init__(location)
        self.written, self.removed, self.broken = [], [], ""
        self.failure = KeyboardInterrupt()

    def _note(self, path):
        if path == self.broken:
            raise self.failure
        if not path.startswith(OWN):
            self.written.append(path)

    def write(self, path, content):
        self._note(path)
        return super().write(path, content)

    def upload(self, path, content, size):
        self._note(path)
        return super().upload(path, content, size)

    def delete(self, paths):
        self.removed += [path for path in paths if not path.startswith(OWN)]
        super().delete(paths)


def publication(**contents):
    """Objects by path, where ``m__x`` stands for ``m/x``; configurations last."""
    files = [PublishedFile(name.replace("__", "/"), content=text.encode()) for name, text in contents.items()]
    return Publication(tuple(sorted(files, key=lambda file: file.path.endswith("model.py"))), ())


def config(model, text="a"):
    return {f"{model}__1__model.py": text, f"{model}__config.pbtxt": text}


def below(remote):
    found = (str(path.relative_to(remote)) for path in remote.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith(OWN))


def copied(objects, tmp_path, public=None):
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    (tmp_path / "copy").mkdir()
    return copy_publication(objects, tmp_path / "copy", NoProgress(), trust=read_trust([public] if public else []))


SIGNED = "a/.envpack-statement.json"


def written_to(name, text):
    def change(remote):
        (remote / name).parent.mkdir(parents=True, exist_ok=True)
        (remote / name).write_text(text)

    return change
