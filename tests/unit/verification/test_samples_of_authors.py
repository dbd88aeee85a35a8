"""Published models come without samples; those of their authors' repository are sent."""

from envpack.support.progress import NoProgress
from envpack.verification import SAMPLES_FILE
from envpack.verification.published import _add_samples


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
