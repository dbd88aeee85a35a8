"""Options that commands had once, and what does their work now."""

from __future__ import annotations

import click

from envpack.cli.console import Failure
from envpack.settings import FIELDS, Flag

_DOCKERFILE = (
    "leave it out, and run `docker build --tag TAG DIRECTORY` on the folder of --output, which has a Dockerfile"
)
_LOCKED = (
    "leave it out; what another program chose is read from the output of `conda list --explicit --md5`, from "
    "conda-lock.yml or from pixi.lock, as the model's requirements"
)
_ALL = "leave it out: without MODEL, a command works on all models"
_JOB = "use envpack kubernetes verify, which has it"

# COMMAND --OPTION → what to do instead; a command is written as it is typed after `envpack`.
REMOVED = {
    **{f"{command} --engine": _LOCKED for command in ("lock", "build", "dev")},
    **{f"{command} --all": _ALL for command in ("build", "lock", "verify", "dev", "test", "layout", "publish")},
    **{f"{command} --no-push": "use --set push=false" for command in ("build", "lock", "run", "stub")},
    **{f"{command} --emit": f"use envpack kubernetes {command}" for command in ("build", "verify")},
    "build --sizes": "leave it out; envpack inspect MODEL/environment lists the size of each package",
    "build --image": "use envpack kubernetes build --build-image IMAGE",
    "build --secret": "use envpack kubernetes build, which has it",
    "build --memory": "use envpack kubernetes build, which has it",
    "verify --backend-config": "use --server-arg=--backend-config=BACKEND,NAME=VALUE",
    **{f"verify {option}": _JOB for option in ("--claim", "--envpack-image", "--envpack-wheel")},
    "test --triton": "leave it out: tests run on a real server whenever one can be started, and --local runs none",
    "layout --image": _DOCKERFILE,
    "layout --from": f"{_DOCKERFILE}; --build-arg BASE=IMAGE names another base image",
    "layout --pull": f"{_DOCKERFILE}; Docker fetches the base image",
}


def removed_option(error: click.ClickException) -> Failure | None:
    """What to print if an option is unknown because it was removed; None for any other error."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return None
    path = error.ctx.command_path
    command = path.partition(" ")[2]
    instead = REMOVED.get(f"{command} {error.option_name}") or _assignment(command, error.option_name)
    if not instead:
        return None
    return Failure(f"{path} has no {error.option_name} any more", kind="usage", exit_code=error.exit_code, hint=instead)


def _assignment(command: str, option: str) -> str:
    """The words that say the same through ``--set``; ``""`` if the command has no such setting."""
    field = next((field for field in FIELDS.values() if field.flag == option), None)
    if field is None or command.replace(" ", "-") not in field.has_set:
        return ""
    value = "true" if isinstance(field.kind, Flag) else field.kind.metavar or "VALUE"
    return f"use --set {field.name}={value}, or say it in envpack.toml"
