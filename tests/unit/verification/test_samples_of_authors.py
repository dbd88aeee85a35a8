"""Published models come without samples; those of their authors' repository are sent."""

import os

import pytest

from envpack.support.errors import InputError
from envpack.support.progress import NoProgress
from envpack.verification.published import _add_samples
from envpack.verification.samples import SAMPLES_FILE


def write(folder, model, text):
    (folder / model / SAMPLES_FILE).parent.mkdir(parents=True)
    (folder / model / SAMPLES_FILE).write_text(text)


def test_a_model_gets_the_samples_that_its_repository_has(tmp_path):
    models, repository = tmp_path / "models", tmp_path / "repository"
    for name in ("a", "b", "c"):
        (models / name).mkdir(parents=True)
    write(models, "own", "its own")
    for name in ("a", "own", "elsewhere"):
        write(repository, name, "of the author")
    _add_samples(models, repository, NoProgress())
    _add_samples(models, None, NoProgress())
    found = {file.parent.parent.name: file.read_text() for file in models.rglob(SAMPLES_FILE.name)}
    assert found == {"a": "of the author", "own": "its own"}


def test_a_server_of_another_user_can_read_them_whatever_the_umask(tmp_path):
    (tmp_path / "models/a").mkdir(parents=True)
    write(tmp_path, "a", "of the author")
    before = os.umask(0o077)
    try:
        _add_samples(tmp_path / "models", tmp_path, NoProgress())
    finally:
        os.umask(before)
    place = tmp_path / "models/a" / SAMPLES_FILE
    assert [path.stat().st_mode & 0o777 for path in (place, place.parent)] == [0o444, 0o755]


def test_samples_that_cannot_be_read_are_not_left_out(tmp_path):
    (tmp_path / "models/a").mkdir(parents=True)
    (tmp_path / "a/envpack").mkdir(parents=True)
    os.mkfifo(tmp_path / "a" / SAMPLES_FILE)
    with pytest.raises(InputError, match="these samples cannot be read: it is not a regular file") as raised:
        _add_samples(tmp_path / "models", tmp_path, NoProgress())
    assert (raised.value.kind, raised.value.where) == ("bad-samples", str(tmp_path / "a" / SAMPLES_FILE))
    assert not list((tmp_path / "models/a").iterdir())
