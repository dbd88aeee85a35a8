"""From a repository to where servers read it: a folder, an object store, or a registry; and from there to a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from envpack.deployment.content import texts_with_credentials
from envpack.deployment.folder import assemble, is_inside
from envpack.deployment.images.address import parse_image_address
from envpack.deployment.images.send import PublishedImage, publish_image
from envpack.deployment.objects.content import pin, published_files
from envpack.deployment.objects.fetch import place_publication
from envpack.deployment.objects.prune import DigestAddress, parse_digest_address
from envpack.deployment.objects.send import Published, publish
from envpack.deployment.plan import Deployment, docker_command, plan_deployment, server_arguments
from envpack.deployment.signing import Trust, read_signing_key
from envpack.inspection.files import content_findings, outside_findings
from envpack.inspection.state import known_state
from envpack.inspection.stubs import fit_findings
from envpack.repository.placement import backends_folder
from envpack.settings.project import Project
from envpack.store.location import folder_fault, obstore_for, parse_location, server_address, server_fault
from envpack.store.objects import Objects
from envpack.support.errors import UsageError
from envpack.support.folders import whole_path
from envpack.support.progress import SILENT, Progress
from envpack.support.text import counted


@dataclass(frozen=True, kw_only=True)
class LaidOut:
    """A repository in a folder."""

    description: dict[str, Any]  # the content of its manifest
    cautions: tuple[str, ...]
    command: tuple[str, ...]
    docker: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PublishedObjects:
    """A repository in an object store."""

    url: str  # the address, with the digest if it is to have one
    published: Published  # what was sent and removed, or would be
    pruned: tuple[str, ...]  # addresses of earlier publications that were removed
    cautions: tuple[str, ...]  # what may not work on the server, and earlier publications that could not be removed
    command: tuple[str, ...]  # a command that serves it


def _plan(project: Project, names: Sequence[str], **how: Any) -> Deployment:
    """What `plan_deployment` returns, with a caution for each model that was not built as it is, lacks files, or that
    the image of the release cannot serve.
    """
    plan = plan_deployment(project, names, **how)
    cautions = []
    for deployed in plan.models:
        model = deployed.model
        state = known_state(project, model, plan.release)
        cautions += [f"{deployed.name}: {state.reason}: {state.fix}"] if state.reason else []
        unfit = fit_findings(model, plan.release, backends_folder(project)) if model.has_stub else ()
        findings = (*content_findings(model), *outside_findings(model, has_links=False), *unfit)
        cautions += [f"{found.where}: {found.what}: {found.fix}" for found in findings]
    return replace(plan, cautions=(*plan.cautions, *cautions))


def lay_out(project: Project, names: Sequence[str], output: Path, progress: Progress) -> LaidOut:
    """Assemble models and the backends that they name in a folder; raises what `plan_deployment` and `assemble` do."""
    plan = _plan(project, names)
    what = f"{counted(len(plan.models), 'model')} and {counted(len(plan.backends), 'backend')}"
    progress.begin(f"assemble {what} in {output}")
    description = assemble(plan, output, link_mode=project.of().link_mode)
    progress.end(f"{counted(description['files'], 'file')}, {description['size'] / 1e6:.1f} MB")
    return LaidOut(
        description=dict(description),
        cautions=(*plan.cautions, *texts_with_credentials(plan)),
        command=tuple(server_arguments(plan)),
        docker=tuple(docker_command(plan, whole_path(output))),
    )


def publish_objects(
    project: Project,
    names: Sequence[str],
    url: str,
    progress: Progress,
    *,
    dry_run: bool = False,
    delete: bool = False,
    force: bool = False,
    prune: int = 0,
    sign: Sequence[Path] = (),
) -> PublishedObjects:
    """Publish models to an object store; raises as `publish`, and ``output-inside`` for a folder in the repository."""
    template = parse_digest_address(url)
    _refuse_options(template, delete=delete, prune=prune)
    keys = [read_signing_key(file) for file in sign]
    # The archives do not contain the path on the server.
    plan = _plan(project, names, served_from=str(project.repository), packs=True)
    place = template.of if template else lambda _: parse_location(url)
    example = place("0" * 64)
    if example.folder is not None and is_inside(example.folder, plan):
        what = "models cannot be published into their own repository: the next publication would contain this one"
        raise UsageError("output-inside", what, f"give a folder outside of {plan.models[0].folder.parent}", url)
    obstore_for(url)  # it is missed before archives are packed
    only = tuple(model.name for model in plan.models) if names else ()
    # Other stores' file systems of the server were not seen to fetch such an archive.
    shares = template is not None and example.scheme == "s3" and plan.release.fetches_archives
    with published_files(plan, progress, shares=shares, scheme=example.scheme) as found:
        publication = pin(found, url) if template else found
        location = place(publication.digest)
        progress.begin(f"publish {counted(len(plan.models), 'model')} to {location}")
        published = publish(
            publication,
            Objects(location),
            only=only,
            dry_run=dry_run,
            delete=delete,
            force=force,
            renew=bool(template),
            keys=keys,
            earlier=partial(template.newest, publication.digest) if template else lambda: None,
            progress=progress,
        )
    copied = f", {published.copied / 1e6:.1f} MB of them copied by the store" if published.copied else ""
    progress.end(f"{counted(len(published.sent), 'file')}, {published.size / 1e6:.1f} MB{copied}")
    pruned: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    if template and prune and not dry_run:
        pruned, stays = template.prune(prune, publication.digest, progress)
    fault = server_fault(location, {file.path.rpartition("/")[0] for file in publication.files})
    command = ("tritonserver", f"--model-repository={server_address(location)}")
    return PublishedObjects(
        url=str(location),
        published=published,
        pruned=pruned,
        cautions=(*publication.cautions, *_in_one_line(fault), *stays),
        command=command,
    )


def _in_one_line(fault: tuple[str, str] | None) -> tuple[str, ...]:
    return ("; ".join(fault),) if fault else ()


def _refuse_options(template: DigestAddress | None, *, delete: bool, prune: int) -> None:
    if template and delete:
        fix = "leave --delete out; --prune N removes publications that newer ones have replaced"
        raise UsageError("usage", "nothing is replaced at an address with {digest}, so there is nothing to delete", fix)
    if prune < 0:
        raise UsageError("usage", f"prune is {prune}", "give how many publications stay, or 0 to remove none")
    if prune and not template:
        what = "--prune is for an address with {digest}, where each publication has its own"
        raise UsageError("usage", what, "write s3://bucket/models/{digest}, or use --delete")


def publish_to_registry(
    project: Project,
    names: Sequence[str],
    url: str,
    progress: Progress,
    *,
    base: str = "",
    dry_run: bool = False,
    sign: Sequence[Path] = (),
) -> PublishedImage:
    """Publish models as an image; arguments as `publish_objects`, and the address of a base image by its digest."""
    keys = [read_signing_key(file) for file in sign]
    plan = _plan(project, names)
    address, below = parse_image_address(url, tagged=True), parse_image_address(base, pinned=True) if base else None
    return publish_image(plan, address, base=below, dry_run=dry_run, keys=keys, progress=progress)


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """Models of an object store, in a folder."""

    directory: Path
    files: int
    size: int
    cautions: tuple[str, ...]  # why no server can serve it there
    command: tuple[str, ...]


def fetch_models(url: str, directory: Path, progress: Progress = SILENT, *, trust: Trust | None = None) -> Fetched:
    """Copy published models to a folder, compared with what was published or signed.

    Args:
        url: address in an object store.
        directory: the folder; it is created, or replaced if envpack fetched it, or filled if it is empty.
        progress: receives the bytes.
        trust: who must have signed all models, None for anybody.

    Raises:
        UsageError: kind ``bad-store-address``.
        InputError: something there is not as it was published (``published-changed``) or signed
            (``signature-invalid``), or something else is in the folder (``output-not-ours``).
        StorageError: the store cannot be used, the disk is full, or the folder is not writable.
    """
    location = parse_location(url)
    progress.begin(f"fetch {location}")
    copied = place_publication(Objects(location), directory, progress, trust=trust)
    progress.end(f"{counted(copied.files, 'file')}, {copied.size / 1e6:.1f} MB{', signed' if trust else ''}")
    place = whole_path(directory)
    return Fetched(
        directory=place,
        files=copied.files,
        size=copied.size,
        cautions=_in_one_line(folder_fault(str(place))),
        command=("tritonserver", f"--model-repository={place}"),
    )
