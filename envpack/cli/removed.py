"""Options that commands had once, and what does their work now."""

from __future__ import annotations

import click

from envpack.cli.console import Failure

_DOCKERFILE = (
    "leave it out, and run `docker build --tag TAG DIRECTORY` on the folder of --output, which has a Dockerfile"
)

_LOCKED = (
    "leave it out; what another program chose is read from the output of `conda list --explicit --md5`, from "
    "conda-lock.yml or from pixi.lock, as the model's requirements"
)

# COMMAND --OPTION → what to do instead; a command is written as it is typed after `envpack`.
REMOVED = {
    **{f"{command} --engine": _LOCKED for command in ("lock", "build", "dev")},
    "layout --image": _DOCKERFILE,
    "layout --from": f"{_DOCKERFILE}; --build-arg BASE=IMAGE names another base image",
    "layout --pull": f"{_DOCKERFILE}; Docker fetches the base image",
}


def removed_option(error: click.ClickException) -> Failure | None:
    """What to print if an option is unknown because it was removed; None for any other error."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return None
    command = error.ctx.command_path
    instead = REMOVED.get(f"{command.partition(' ')[2]} {error.option_name}")
    if instead is None:
        return None
    return Failure(
        f"{command} has no {error.option_name} any more", kind="usage", exit_code=error.exit_code, hint=instead
    )
