"""From a trained artifact to a model that builds."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envpack.inspection.files import pointer_findings
from envpack.repository.adoption.answers import Answers, ask
from envpack.repository.adoption.artifact import Artifact
from envpack.repository.adoption.files import write_artifact, write_served
from envpack.repository.adoption.kinds import fetched, inspect_artifact
from envpack.repository.model import UNADDRESSABLE, open_model
from envpack.settings.project import Project, open_project
from envpack.settings.table import Settings
from envpack.support.bounded_reading import refuse_pointer
from envpack.support.entry_locks import kept
from envpack.support.errors import EnvironmentBuildError, EnvpackError, InputError, refuse, storage_errors
from envpack.support.folders import check_models_path, real_path, whole_path
from envpack.support.progress import SILENT, Progress
from envpack.support.redaction import redact
from envpack.support.temp_dirs import check_fillable, filled_folder
from envpack.support.text import counted
from envpack.workflow.build import environment_in_cache


@dataclass(frozen=True, kw_only=True)
class AdoptedModel:
    """A model made of an artifact.

    Attributes:
        folder: of the model.
        title: what the artifact is.
        inputs: names of its inputs.
        outputs: names of its outputs.
        samples: how many samples have answers of the artifact.
        said: the settings that it builds with: those of the caller, with another Python if only that has its packages.
        warnings: what the user should know.
    """

    folder: Path
    title: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    samples: int
    said: Settings
    warnings: tuple[str, ...]


def adopt(
    artifact: str, folder: Path, *, native: bool = False, said: Settings | None = None, progress: Progress = SILENT
) -> AdoptedModel:
    """Write a model that serves a trained artifact.

    Nothing of the artifact is executed here. It runs once in the execution environment of the model, which is built for
    that.

    Args:
        artifact: an MLflow model, a scikit-learn or ONNX file, ``module:function``, or a URI that MLflow knows.
        folder: of the model, which must not exist or be empty.
        native: let Triton's ONNX Runtime serve an ONNX file.
        said: settings that count more than those of the repository.
        progress: receives each step.

    Raises:
        InputError: the artifact cannot be served, or the folder is not empty.
        EnvironmentBuildError: its environment cannot be built, or MLflow does not return it.
        StorageError: the disk is full, or a folder is not writable.
    """
    folder, said = whole_path(folder), said or Settings()
    _check_folder(folder, native=native)
    progress.begin(f"read {redact(artifact)}")
    with storage_errors(folder), fetched(artifact) as source:
        refuse_pointer(Path(source))
        found = inspect_artifact(source, python=said.python, native=native)
        progress.end(found.title)
        if real_path(folder).is_relative_to(real_path(found.source)):
            what = "the model cannot be written into the folder that it is made of"
            raise InputError("not-empty", what, "name a folder elsewhere", str(folder))
        with _repository(folder.parent):
            project = open_project(folder.parent, said)
            try:
                return _written(found, project, folder, progress)
            except EnvironmentBuildError as error:
                if not error.fitting_python or project.of(folder.name).python:
                    raise
                progress.detail(f"{error.message}, so the model gets Python {error.fitting_python}")
                found = inspect_artifact(source, python=error.fitting_python, native=native)
                return _written(found, project.saying(Settings(python=error.fitting_python)), folder, progress)


def _written(found: Artifact, project: Project, folder: Path, progress: Progress) -> AdoptedModel:
    with filled_folder(folder) as partial:
        write_artifact(found, partial)
        try:
            refuse(pointer_findings(partial, None))
            answers = _answers(found, project, partial, folder.name, progress)
        except EnvpackError as error:
            error.where = _place(error.where, partial, found)
            raise
        write_served(found, answers, partial)
    return AdoptedModel(
        folder=folder,
        title=found.title,
        inputs=tuple(tensor.name for tensor in answers.inputs),
        outputs=tuple(tensor.name for tensor in answers.outputs),
        samples=len(answers.data),
        said=project.said,
        warnings=tuple(note.replace(str(partial), str(folder)) for note in (*found.notes, *answers.notes)),
    )


@contextlib.contextmanager
def _repository(folder: Path) -> Iterator[None]:
    """Make the folder of the models and those around it, and remove those again if the block fails."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for place in made:
                place.rmdir()
        raise


def _check_folder(folder: Path, *, native: bool) -> None:
    if unfit := UNADDRESSABLE.search(folder.name):
        what = f"{folder.name!r} cannot be the name of the model: it contains {unfit[0]!r}"
        raise InputError("bad-model-name", what, "use letters, digits, _ and -", str(folder))
    if not native:  # no shell starts those
        check_models_path(folder)
    check_fillable(folder)


def _answers(artifact: Artifact, project: Project, partial: Path, name: str, progress: Progress) -> Answers:
    """The answers of the model in an unfinished folder, with the settings that its name has."""
    model, settings = open_model(partial), project.models.get(name, Settings())
    project = dataclasses.replace(project, models={**project.models, partial.name: settings})
    with kept(lambda: environment_in_cache(project, model, progress), lambda found: found.prefix) as environment:
        progress.begin("call the model in its own environment")
        answers = ask(artifact, partial / "1", environment.prefix / "bin/python", project.of().timeout)
        progress.end(counted(len(answers.data), "sample"))
    return answers


def _place(where: str, partial: Path, artifact: Artifact) -> str:
    """A place in the unfinished folder as the file of the artifact that it comes from."""
    for copy, original in artifact.files.items():
        where = where.replace(str(partial / "1" / copy), str(original))
    for copy, content in artifact.requirements.items():
        if where.startswith(str(partial / copy)):
            written = artifact.source / copy
            return str(content) if isinstance(content, Path) else str(written if written.exists() else artifact.source)
    return where.replace(str(partial), str(artifact.source))
